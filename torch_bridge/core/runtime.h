// The one global of the process: device, pool, arena, codec, residency and counters, built by
// install and leaked on purpose (tensors are freed until the very end of the process, after static
// destructors have run).
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "allocator/allocator.h"
#include "torch_bridge/core/codec_adapter.h"
#include "torch_bridge/core/options.h"

namespace pleat::bridge {

// Why a saved tensor got a record, or did not. One list, counted, printed in the report.
enum class Reason : std::uint8_t {
  kEligibleLossy,
  kEligibleLossless,
  kDisabled,  // pleat_disable, exempt, a forked child, after exit
  kUndefined,
  kLeaf,  // parameters and other leaves that require grad
  kViewOfLeaf,
  kCastOfParameter,  // low-precision or transposed copies of a parameter
  kNotPlainStrided,  // fake, functional, meta, sparse, quantised, nested, subclass
  kOtherDevice,
  kTooSmall,
  kForeignStorage,  // numpy, shared memory, dlpack, older than us, a view into something else
  kStorageInUse,    // the block belongs to another storage object by now
  kTracing,
  kCompiledFunction,  // what a function of torch.compile saves; it has chosen that itself
  kCount,
};
[[nodiscard]] const char* reason_name(Reason reason) noexcept;

class Runtime {
 public:
  explicit Runtime(const Options& options, compress::Executor executor);

  // Null until install succeeded. Leaked: see above.
  [[nodiscard]] static Runtime* get() noexcept { return instance_.load(std::memory_order_acquire); }
  static void publish(Runtime* runtime) noexcept {
    instance_.store(runtime, std::memory_order_release);
  }

  [[nodiscard]] Options options() const;
  void set_options(const Options& options);  // min_bytes of the allocator follows too

  // True if tensors of this thread may be tagged now.
  [[nodiscard]] bool tagging() const noexcept;
  void set_enabled(bool enabled) noexcept { enabled_.store(enabled, std::memory_order_relaxed); }
  [[nodiscard]] bool enabled() const noexcept { return enabled_.load(std::memory_order_relaxed); }
  // A forked child or a process past exit: never tags or encodes again, frees only.
  void retire() noexcept;
  // Around fork(): the child must not find a lock held by a thread that it does not have.
  void lock_for_fork() noexcept;
  void unlock_after_fork(allocator::ForkSide side) noexcept;

  static void exempt_enter() noexcept;
  static void exempt_exit() noexcept;

  // True in a thread that has saved or restored a tensor: one that runs operators, with ATen's
  // threads beside it.
  static void note_thread_computes() noexcept;
  [[nodiscard]] static bool thread_computes() noexcept;

  // ---- the parts ----
  allocator::Statistics statistics;
  allocator::HostDevice device;
  allocator::Pool pool;
  allocator::IdleTrimmer idle_trimmer{pool};
  allocator::PayloadArena arena;
  CodecAdapter codec;
  allocator::Residency residency;

  // ---- read on hot paths, written by set_options ----
  std::atomic<std::size_t> min_bytes{0};
  std::atomic<std::uint8_t> lossy_width{0};  // codec width; 0: lossless
  std::atomic<bool> copy_raw{false};
  std::atomic<bool> reuse_gradients{true};
  std::atomic<bool> recompute{true};

  // ---- bookkeeping ----
  void count(Reason reason, std::size_t bytes) noexcept {
    auto& c = reasons_[static_cast<std::size_t>(reason)];
    c.tensors.fetch_add(1, std::memory_order_relaxed);
    c.bytes.fetch_add(bytes, std::memory_order_relaxed);
  }
  struct ReasonCount {
    std::atomic<std::uint64_t> tensors{0}, bytes{0};
  };
  [[nodiscard]] const ReasonCount& reason(Reason reason) const noexcept {
    return reasons_[static_cast<std::size_t>(reason)];
  }
  [[nodiscard]] std::uint64_t next_nonce() noexcept;

  // The ordinal of this key family in the present graph (reset by begin_backward).
  [[nodiscard]] std::uint32_t next_ordinal(std::uint64_t family);
  // What has been taught of a family or a call site: Needs, packed (node_class.h); the highest
  // wins.
  void learn(std::uint64_t lesson, std::uint8_t needs);
  std::atomic<std::uint64_t> lessons{1};  // rises whenever learned() may answer otherwise
  [[nodiscard]] std::uint8_t learned(std::uint64_t lesson);
  std::atomic<bool> knows_poles{false};  // one of the lessons is of before_pole.h
  // Asked for the first time in this backward pass or one of the last few before it.
  [[nodiscard]] bool is_new(std::uint64_t lesson);

  // Outermost backward passes of any thread.
  void begin_backward() noexcept;
  std::atomic<std::uint64_t> backward_passes{0};
  std::atomic<std::uint64_t> live_at_unpack{0}, unpacks{0}, packs{0}, reused{0}, swapped{0};
  std::atomic<std::uint64_t> gradients_reused{0}, gradient_bytes_reused{0};
  std::atomic<std::uint64_t> hook_ns_sampled{0}, hook_samples{0};
  std::atomic<bool> interposed{false};

 private:
  static std::atomic<Runtime*> instance_;
  mutable std::mutex options_mutex_;
  Options options_;
  std::atomic<bool> enabled_{true};
  std::atomic<std::uint64_t> saves_{0}, seed_{0};
  std::uint64_t rank_ = 0;
  std::array<ReasonCount, static_cast<std::size_t>(Reason::kCount)> reasons_{};
  std::mutex keys_mutex_;
  std::unordered_map<std::uint64_t, std::uint32_t> ordinals_;
  std::unordered_map<std::uint64_t, std::uint8_t> learned_;
  std::unordered_map<std::uint64_t, std::uint64_t> first_asked_;  // in which backward pass
};

// Reports, torch-free.
[[nodiscard]] std::string stats_json(Runtime& runtime);
[[nodiscard]] std::string report_text(Runtime& runtime);

}  // namespace pleat::bridge
