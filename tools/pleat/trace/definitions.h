// What the numbers in records stand for: strings, frames, stacks, modules, and the process. Ids
// that nothing defines are shown as "?". Holds no more than a bound, whatever the file says.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "interpose/trace/format.h"

namespace pleat::trace {

inline constexpr std::uint32_t kNone = 0xffffffff;

// Things by id. Ids count from 1; where a block of the file is lost there is a gap.
template <class Item>
class IdTable {
 public:
  static constexpr std::size_t kMost = 1u << 24;

  // Starts a row of ids. False: ids do not go up, or there are too many.
  [[nodiscard]] bool begin(std::uint64_t first) {
    if (first == 0 || first >= kNone || first < next_) return false;
    if (runs_.empty() || first != next_)
      runs_.push_back({static_cast<std::uint32_t>(first), items_.size()});
    next_ = first;
    return true;
  }
  [[nodiscard]] bool add(const Item& item) {
    if (items_.size() >= kMost || next_ >= kNone) return false;
    items_.push_back(item);
    ++next_;
    return true;
  }
  [[nodiscard]] const Item* find(std::uint32_t id) const noexcept {
    if (id == 0 || id >= next_) return nullptr;
    const auto behind =
        std::upper_bound(runs_.begin(), runs_.end(), id,
                         [](std::uint32_t wanted, const Run& run) { return wanted < run.first; });
    if (behind == runs_.begin()) return nullptr;
    const Run& run = behind[-1];
    const std::size_t end = behind == runs_.end() ? items_.size() : behind->start;
    const std::size_t place = run.start + (id - run.first);
    return place < end ? &items_[place] : nullptr;
  }
  // No id is larger.
  [[nodiscard]] std::uint32_t last() const noexcept {
    return static_cast<std::uint32_t>(next_ - 1);
  }
  // The id that comes next.
  [[nodiscard]] std::uint64_t next() const noexcept { return next_; }
  [[nodiscard]] std::size_t size() const noexcept { return items_.size(); }

 private:
  struct Run {
    std::uint32_t first;
    std::size_t start;
  };
  std::vector<Item> items_;
  std::vector<Run> runs_;
  std::uint64_t next_ = 1;
};

struct Frame {
  FrameKind kind = FrameKind::kPython;
  std::uint32_t name = 0;   // a string. Native: the module
  std::uint32_t file = 0;   // a string; of Python
  std::uint64_t where = 0;  // the line; native: the offset
};

struct Stack {
  std::uint32_t caller = 0;  // smaller than its own id; 0: none
  std::uint32_t frame = 0;
};

// A part of the text of all definitions.
struct Text {
  std::uint32_t begin = 0, bytes = 0;
};

struct Module {
  Text path;
  std::array<std::uint8_t, 20> build_id{};
  std::uint8_t build_id_bytes = 0;
};

// 0 and empty: the file does not say.
struct Process {
  std::uint64_t pid = 0;
  std::string host, torch, pleat, stacks, options, command;
  std::int64_t rank = -1, local_rank = -1, world_size = -1;  // -1: not told
  std::uint64_t start_ns = 0, start_wall_ns = 0;
  std::uint64_t part = 0;  // of a trace in several files; 0 and 1: the first
};

class Definitions {
 public:
  // Adds what a block holds. False: it is damaged, or there is no room; what was whole is kept.
  [[nodiscard]] bool add(BlockType type, std::uint32_t count, std::span<const std::uint8_t> bytes);

  // The text; "?": nothing defines it; empty: 0.
  [[nodiscard]] std::string_view string(std::uint32_t id) const noexcept;
  [[nodiscard]] const Frame* frame(std::uint32_t id) const noexcept { return frames_.find(id); }
  [[nodiscard]] const Stack* stack(std::uint32_t id) const noexcept { return stacks_.find(id); }
  [[nodiscard]] const Module* module(std::uint32_t id) const noexcept { return modules_.find(id); }
  [[nodiscard]] std::string_view text(Text part) const noexcept {
    return std::string_view(texts_).substr(part.begin, part.bytes);
  }
  [[nodiscard]] std::uint32_t last_string() const noexcept { return strings_.last(); }
  [[nodiscard]] std::uint32_t last_frame() const noexcept { return frames_.last(); }
  [[nodiscard]] std::uint32_t last_stack() const noexcept { return stacks_.last(); }
  [[nodiscard]] const Process& process() const noexcept { return process_; }

  // Calls visit(frame id) from the innermost frame to the root, until it returns false.
  template <class Visit>
  void walk(std::uint32_t stack_id, Visit&& visit) const {
    for (unsigned depth = 0; depth < kMostFrames && stack_id != 0; ++depth) {
      const Stack* const found = stack(stack_id);
      if (found == nullptr || !visit(found->frame)) return;
      stack_id = found->caller;
    }
  }

 private:
  class Reading;

  IdTable<Text> strings_;
  std::string texts_;
  IdTable<Frame> frames_;
  IdTable<Stack> stacks_;
  IdTable<Module> modules_;
  Process process_;
};

}  // namespace pleat::trace
