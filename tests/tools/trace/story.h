// A trace told event by event, as an allocator would have emitted it: changes follow from what is
// told. What is told wrongly on purpose goes through add().
#pragma once

#include <map>
#include <memory>
#include <vector>

#include "tests/tools/trace/writer.h"
#include "tools/pleat/trace/reader.h"

namespace pleat::trace::testing {

inline constexpr std::uint64_t kChunk = 1000000;  // the chunk of slot()
inline constexpr std::uint8_t kOther = 0, kForward = 1, kBackward = 2, kOptimizer = 3, kBetween = 4,
                              kData = 5;

class Story {
 public:
  TraceWriter writer;

  // What all that follows is told of.
  std::uint32_t thread = 1;
  std::uint8_t phase = kOther;
  std::uint32_t op = 0, stack = 0;
  std::uint64_t node = 0;
  std::int8_t device = -1;

  // Returns the number of the event.
  std::size_t add(PleatTraceEvent event);
  std::size_t mark(std::uint8_t kind, std::uint64_t bytes = 0);
  std::size_t begin(std::uint8_t new_phase, std::uint64_t step = 0);
  // `owner`: the record whose payload goes there.
  std::size_t allocate(std::uint64_t block, std::uint64_t bytes, std::uint64_t owner = 0);
  std::size_t free(std::uint64_t block);
  std::size_t shrink(std::uint64_t block, std::uint64_t bytes);
  std::size_t label(std::uint64_t block, std::uint8_t reason, std::uint64_t bytes);
  std::size_t present(std::int64_t requested, std::int64_t reserved);
  std::size_t slot(std::uint8_t kind, std::uint64_t bytes, std::int64_t change,
                   std::uint64_t owner = 0, std::uint64_t address = 0);
  // Any of the events of a record.
  std::size_t record(std::uint8_t kind, std::uint64_t record, std::uint64_t block,
                     std::uint64_t bytes);

  // `place`: a PleatTracePlace. `block`: of the payload, or the chunk's.
  std::size_t encode(std::uint64_t record, std::uint8_t place, std::uint64_t block,
                     std::uint64_t bytes);

  [[nodiscard]] const std::vector<PleatTraceEvent>& events() const noexcept { return events_; }
  // Written in blocks of a few records, and opened.
  [[nodiscard]] std::unique_ptr<File> open();

 private:
  [[nodiscard]] PleatTraceEvent next(std::uint8_t kind) const;

  std::vector<PleatTraceEvent> events_;
  std::map<std::pair<int, std::uint64_t>, std::uint64_t> sizes_;
};

}  // namespace pleat::trace::testing
