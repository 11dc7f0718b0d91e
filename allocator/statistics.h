// Statistics counts bytes by kind, current and peak; a payload counts as allocated from encode to
// drop. Plain relaxed atomics, readable from any thread or signal handler.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace pleat::allocator {

// The kinds of bytes counted. Requested, active and reserved have the meaning of requested_bytes,
// active_bytes and reserved_bytes in torch.cuda.memory_stats(): active adds the rounding to
// requested, and reserved adds the free memory to active. Reserved counts mapped memory, not mere
// addresses, as torch's reserved_bytes do for expandable segments.
enum class StatKind : std::uint8_t {
  kRequested,  // blocks in use, as callers requested; for a chunk, the bytes of its payloads
  kActive,     // blocks in use, rounded up to whole granules; a chunk of payloads counts whole
  kSavedRaw,   // storages that are saved and not compressed (tagged, or held raw)
  kPayload,    // payloads
  kRestored,   // restored storages that are alive
  kCached,     // reserved and not active: pages of free blocks
  kReserved,  // pages that Pleat's segments have from the system; all pages of active blocks count,
              // written or not; addresses without pages do not count
  kCount,
};

inline constexpr std::size_t kStatKinds = static_cast<std::size_t>(StatKind::kCount);

[[nodiscard]] const char* stat_name(StatKind kind) noexcept;

struct StatValues {
  std::int64_t current = 0;
  std::int64_t peak = 0;
  std::int64_t allocated = 0;  // sum of all increases
  std::int64_t freed = 0;      // sum of all decreases
};

class Statistics {
 public:
  // May be called from any thread.
  void add(StatKind kind, std::int64_t bytes) noexcept {
    Counter& c = counters_[static_cast<std::size_t>(kind)];
    if (bytes >= 0) {
      note_window(kind, c.current.load(std::memory_order_relaxed) + bytes);
      c.allocated.fetch_add(bytes, std::memory_order_relaxed);
      const std::int64_t now = c.current.fetch_add(bytes, std::memory_order_relaxed) + bytes;
      std::int64_t peak = c.peak.load(std::memory_order_relaxed);
      while (now > peak && !c.peak.compare_exchange_weak(peak, now, std::memory_order_relaxed)) {
      }
    } else {
      c.current.fetch_add(bytes, std::memory_order_relaxed);
    }
  }
  // Like add(), without the cost of an atomic read-modify-write: all writers of the kind must hold
  // the same lock. The pool writes its own kinds (kRequested, kActive, kCached, kReserved) this
  // way; hence one Statistics per pool.
  void add_exclusive(StatKind kind, std::int64_t bytes) noexcept {
    Counter& c = counters_[static_cast<std::size_t>(kind)];
    const std::int64_t now = c.current.load(std::memory_order_relaxed) + bytes;
    c.current.store(now, std::memory_order_relaxed);
    if (bytes > 0) {
      c.allocated.store(c.allocated.load(std::memory_order_relaxed) + bytes,
                        std::memory_order_relaxed);
      if (now > c.peak.load(std::memory_order_relaxed)) {
        c.peak.store(now, std::memory_order_relaxed);
      }
      note_window(kind, now);
    }
  }

  // Since restart_window(): the peaks of requested and of reserved bytes, and the payload at the
  // former.
  struct Window {
    std::int64_t requested = 0, payload = 0, reserved = 0;
  };
  [[nodiscard]] Window window() const noexcept {
    return {window_requested_.load(std::memory_order_relaxed),
            window_payload_.load(std::memory_order_relaxed),
            window_reserved_.load(std::memory_order_relaxed)};
  }
  void restart_window() noexcept {
    window_requested_.store(current(StatKind::kRequested), std::memory_order_relaxed);
    window_payload_.store(current(StatKind::kPayload), std::memory_order_relaxed);
    window_reserved_.store(current(StatKind::kReserved), std::memory_order_relaxed);
  }
  // From any thread. The four values can be of slightly different moments.
  [[nodiscard]] StatValues read(StatKind kind) const noexcept {
    const Counter& c = counters_[static_cast<std::size_t>(kind)];
    const std::int64_t current = c.current.load(std::memory_order_relaxed);
    const std::int64_t allocated = c.allocated.load(std::memory_order_relaxed);
    return {current, c.peak.load(std::memory_order_relaxed), allocated, allocated - current};
  }
  [[nodiscard]] std::int64_t current(StatKind kind) const noexcept {
    return counters_[static_cast<std::size_t>(kind)].current.load(std::memory_order_relaxed);
  }
  // Restarts the peaks from the current values.
  void reset_peaks() noexcept {
    for (Counter& c : counters_) {
      c.peak.store(c.current.load(std::memory_order_relaxed), std::memory_order_relaxed);
    }
  }

 private:
  struct Counter {
    std::atomic<std::int64_t> current{0}, peak{0}, allocated{0};
  };
  void note_window(StatKind kind, std::int64_t now) noexcept {
    if (kind == StatKind::kRequested) {
      if (now > window_requested_.load(std::memory_order_relaxed)) {
        window_requested_.store(now, std::memory_order_relaxed);
        window_payload_.store(current(StatKind::kPayload), std::memory_order_relaxed);
      }
    } else if (kind == StatKind::kReserved &&
               now > window_reserved_.load(std::memory_order_relaxed)) {
      window_reserved_.store(now, std::memory_order_relaxed);
    }
  }

  std::array<Counter, kStatKinds> counters_{};
  std::atomic<std::int64_t> window_requested_{0}, window_payload_{0}, window_reserved_{0};
};

}  // namespace pleat::allocator
