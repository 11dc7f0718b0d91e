// What the parts of a program do with memory: its modules, or groups that a user names. A part may
// be a part of another one.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "class_bytes.h"
#include "compression.h"
#include "ledger.h"
#include "live_table.h"

namespace pleat::trace {

// Into which parts a program is divided. Parts are numbered from 0; there may come more with each
// question.
class Parts {
 public:
  virtual ~Parts() = default;
  [[nodiscard]] virtual std::uint32_t part_of(const Origin& place) = 0;
  // Of a smaller number than the part's own; kNone: it is no part of another.
  [[nodiscard]] virtual std::uint32_t parent_of(std::uint32_t part) const = 0;
};

struct PartFigures {
  CompressionSums saved;           // over the whole trace
  std::int64_t saved_in_step = 0;  // for backward, in the step that saved most
  std::int64_t temporary = 0;      // the most that lived at once
  std::int64_t largest = 0;        // of its tensors, over the whole trace
  Origin largest_place;
  ClassBytes live{};  // at a moment

  // For backward, at the moment.
  [[nodiscard]] std::int64_t retained() const noexcept;
  [[nodiscard]] std::int64_t live_bytes() const noexcept { return sum_of(live); }
  // Of what it saved over the whole trace: as it was once all was done that was done.
  [[nodiscard]] std::int64_t left_bytes() const noexcept;
  [[nodiscard]] bool empty() const noexcept;
};

struct PartUse {
  PartFigures own;  // without its parts
  PartFigures all;  // with all of them
};

// What a device's parts do, as events pass by.
class PartBook {
 public:
  PartBook(int device, Parts& parts) : device_(device), parts_(parts) {}
  void take(const PleatTraceEvent& event, const Ledger& ledger);
  // Lives at the moment that is told of.
  void take_moment(const LiveEntry& entry);
  // By the part's number.
  [[nodiscard]] std::vector<PartUse> uses() const;

 private:
  struct Figures : PartFigures {
    std::uint32_t step = kNoStep;  // the last in which it saved something
    std::int64_t saved_now = 0;    // in that step
    std::int64_t temporary_now = 0;
  };
  struct Node {
    Figures own, all;
  };
  struct Temporary {
    std::uint32_t part = 0;
    std::int64_t bytes = 0;
  };

  // change(figures) for the part itself, and for it and all that it is a part of.
  template <class Change>
  void change(std::uint32_t part, Change&& change);
  void take_record(const PleatTraceEvent& event, const Ledger& ledger);
  void take_allocated(const LiveEntry& block);
  // `block`: what the ledger knows of it now.
  void look_at(std::uint64_t id, const std::optional<LiveEntry>& block);

  int device_;
  Parts& parts_;
  std::vector<Node> nodes_;
  LiveTable<Temporary> temporary_;         // by block
  LiveTable<std::uint64_t> saved_blocks_;  // by record, while it is raw
};

}  // namespace pleat::trace
