// Texts, frames and stacks as numbers. A number is given once and for good; traces that follow one
// another in a process share them.
#pragma once

#include <pthread.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "interpose/trace/mapped.h"
#include "interpose/trace/ring.h"

namespace pleat::trace {

struct Text {
  std::uint32_t offset = 0;
  std::uint32_t bytes = 0;
};

struct Frame {
  friend bool operator==(const Frame&, const Frame&) = default;
  FrameKind kind = FrameKind::kPython;
  std::uint32_t name = 0;  // Python: texts
  std::uint32_t file = 0;
  std::uint32_t line = 0;
  std::uint64_t address = 0;  // native
};

struct Stack {
  std::uint32_t parent = 0;
  std::uint32_t frame = 0;  // in the file; 0: not known
  RawFrame raw;
};

class Names {
 public:
  // False: no memory.
  bool open() noexcept;

  // The number of a text, of at most kMostStringBytes; 0: no room. Takes a lock where the text is
  // new: not in a handler of signals.
  std::uint32_t text(std::string_view text) noexcept;

  // The number of the stack with these frames, the innermost first. `describe(RawFrame) -> Frame`
  // is called for frames that nobody has had before. 0: no room.
  template <class Describe>
  std::uint32_t stack(std::span<const RawFrame> frames, LastStack& last,
                      Describe&& describe) noexcept;

  // How much could not be kept for want of room.
  [[nodiscard]] std::uint64_t refused() const noexcept {
    return refused_.load(std::memory_order_relaxed);
  }

  // ---- in the writer's thread; number n is entry n - 1 ----
  [[nodiscard]] std::size_t texts() const noexcept { return texts_.size(); }
  [[nodiscard]] std::string_view text_at(std::size_t i) const noexcept {
    return {bytes_ + texts_[i].offset, texts_[i].bytes};
  }
  [[nodiscard]] std::size_t frames() const noexcept { return frames_.size(); }
  [[nodiscard]] const Frame& frame_at(std::size_t i) const noexcept { return frames_[i]; }
  [[nodiscard]] std::size_t stacks() const noexcept { return stacks_.size(); }
  [[nodiscard]] const Stack& stack_at(std::size_t i) const noexcept { return stacks_[i]; }

  static constexpr std::size_t kMostTexts = std::size_t{1} << 18;
  static constexpr std::size_t kMostTextBytes = std::size_t{16} << 20;
  static constexpr std::size_t kMostFramesInAll = std::size_t{1} << 18;
  static constexpr std::size_t kMostStacks = std::size_t{1} << 20;

 private:
  // Numbers by hash, found without a lock; one thread adds. A table that is too small is replaced
  // and stays where it was.
  class Index {
   public:
    // The first number n with same(n), or 0.
    template <class Same>
    [[nodiscard]] std::uint32_t find(std::uint64_t hash, Same&& same) const noexcept {
      const Table* const table = table_.load(std::memory_order_acquire);
      if (table == nullptr) return 0;
      for (std::uint64_t i = hash;; ++i) {
        const std::uint32_t number =
            table->numbers[i & table->mask].load(std::memory_order_acquire);
        if (number == 0 || same(number)) return number;
      }
    }
    // `hash_of(n)` is asked where the table grows. False: no memory.
    template <class HashOf>
    bool add(std::uint64_t hash, std::uint32_t number, HashOf&& hash_of) noexcept {
      Table* table = table_.load(std::memory_order_relaxed);
      if (table == nullptr || 2 * (size_ + 1) > table->mask) {
        Table* const larger = make(table != nullptr ? 4 * (table->mask + 1) : 1024);
        if (larger == nullptr) return false;
        if (table != nullptr) {
          for (std::uint64_t i = 0; i <= table->mask; ++i) {
            const std::uint32_t old = table->numbers[i].load(std::memory_order_relaxed);
            if (old != 0) put(*larger, hash_of(old), old);
          }
        }
        put(*larger, hash, number);
        table_.store(larger, std::memory_order_release);
      } else {
        put(*table, hash, number);
      }
      ++size_;
      return true;
    }

   private:
    struct Table {
      std::uint64_t mask;
      std::atomic<std::uint32_t> numbers[1];  // mask + 1 of them
    };
    static Table* make(std::uint64_t slots) noexcept {
      auto* const table = static_cast<Table*>(
          map_zeros(sizeof(Table) + slots * sizeof(std::atomic<std::uint32_t>)));
      if (table != nullptr) table->mask = slots - 1;
      return table;
    }
    static void put(Table& table, std::uint64_t hash, std::uint32_t number) noexcept {
      while (table.numbers[hash & table.mask].load(std::memory_order_relaxed) != 0) ++hash;
      table.numbers[hash & table.mask].store(number, std::memory_order_release);
    }
    std::atomic<Table*> table_{nullptr};
    std::uint64_t size_ = 0;
  };

  static std::uint64_t mixed(std::uint64_t x) noexcept {
    x = (x ^ (x >> 32)) * 0xd6e8feb86659fd93u;
    return x ^ (x >> 32);
  }
  static std::uint64_t hash_of(std::uint32_t parent, const RawFrame& raw) noexcept {
    return mixed(mixed(raw.code ^ (std::uint64_t{parent} << 40)) +
                 static_cast<std::uint32_t>(raw.at) * 0x9e3779b97f4a7c15u);
  }
  static std::uint64_t hash_of(const RawFrame& raw) noexcept { return hash_of(0, raw); }
  static std::uint64_t hash_of(std::string_view text) noexcept;
  static std::uint64_t hash_of(const Frame& frame) noexcept {
    return mixed(mixed(std::uint64_t{frame.name} << 32 | frame.file) + frame.line) + frame.address;
  }
  [[nodiscard]] std::uint32_t find_stack(std::uint32_t parent, const RawFrame& raw) const noexcept {
    return stack_index_.find(hash_of(parent, raw), [&](std::uint32_t number) {
      const Stack& stack = stacks_[number - 1];
      return stack.parent == parent && stack.raw == raw;
    });
  }
  std::uint32_t add_text(std::string_view text) noexcept;
  std::uint32_t add_stack(std::uint32_t parent, const RawFrame& raw, std::uint32_t frame) noexcept;
  [[nodiscard]] std::uint32_t find_frame(const RawFrame& raw) const noexcept;
  std::uint32_t add_frame(const RawFrame& raw, const Frame& frame) noexcept;

  // Waits for others, but not for itself: a handler of a signal may come while this thread has it.
  class Lock {
   public:
    explicit Lock(Names& names) noexcept;
    ~Lock();
    Lock(const Lock&) = delete;
    Lock& operator=(const Lock&) = delete;
    explicit operator bool() const noexcept { return held_; }

   private:
    Names& names_;
    bool held_ = false;
  };

  pthread_mutex_t mutex_ = PTHREAD_MUTEX_INITIALIZER;
  char* bytes_ = nullptr;
  std::size_t bytes_used_ = 0;
  GrowingArray<Text> texts_;
  GrowingArray<Frame> frames_;
  GrowingArray<RawFrame> raw_frames_;         // that were seen
  GrowingArray<std::uint32_t> frame_of_raw_;  // as long
  GrowingArray<Stack> stacks_;
  Index text_index_, frame_index_, line_index_, stack_index_;
  std::atomic<std::uint64_t> refused_{0};
};

template <class Describe>
std::uint32_t Names::stack(std::span<const RawFrame> frames, LastStack& last,
                           Describe&& describe) noexcept {
  const auto count = static_cast<std::uint32_t>(frames.size());
  std::uint32_t same = 0;
  while (same < count && same < last.frames && last.frame[same] == frames[count - 1 - same]) ++same;
  std::uint32_t number = same != 0 ? last.id[same - 1] : 0;
  last.frames = same;
  for (std::uint32_t i = same; i < count; ++i) {
    const RawFrame& raw = frames[count - 1 - i];
    std::uint32_t found = find_stack(number, raw);
    if (found == 0) {
      // What describes a frame may run code of the job: without the lock.
      const Frame frame = find_frame(raw) == 0 ? describe(raw) : Frame{};
      const Lock lock(*this);
      if (!lock) return 0;
      found = find_stack(number, raw);
      if (found == 0) {
        const std::uint32_t known = find_frame(raw);
        found = add_stack(number, raw, known != 0 ? known : add_frame(raw, frame));
      }
      if (found == 0) return 0;
    }
    number = found;
    last.frame[i] = raw;
    last.id[i] = number;
    last.frames = i + 1;
  }
  return number;
}

}  // namespace pleat::trace
