// A trace's file, opened: who wrote it, what its ids stand for, and its records in order of time.
//
// The file may hold anything. What is damaged is passed over and counted; memory is bounded by the
// sizes that blocks may have, and by how many blocks overlap in time.
//
//   std::string error;
//   if (const auto file = File::open(path, error)) {
//     file->for_each([](const PleatTraceEvent& event) { ... });
//   }
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "block_file.h"
#include "definitions.h"
#include "record_block.h"
#include "version1.h"

namespace pleat::trace {

// What was wrong with a file, each counted once for every pass that met it.
struct Problems {
  std::uint64_t damaged_blocks = 0;    // passed over: header, bytes or columns are not sound
  std::uint64_t odd_values = 0;        // of records, that no record can have
  std::uint64_t unsorted_blocks = 0;   // put in order
  std::uint64_t late_blocks = 0;       // with records before the first time of their header
  std::uint64_t postponed_blocks = 0;  // too many overlap: their records came later than their time

  [[nodiscard]] std::uint64_t all() const noexcept {
    return damaged_blocks + odd_values + unsorted_blocks + late_blocks + postponed_blocks;
  }
};

// Told now and then how many of all records were read.
using Progress = std::function<void(std::uint64_t done, std::uint64_t all)>;

class File {
 public:
  // Nothing: `error` is one line without the path.
  [[nodiscard]] static std::unique_ptr<File> open(const std::string& path, std::string& error);

  [[nodiscard]] const Definitions& definitions() const noexcept { return definitions_; }
  [[nodiscard]] const Process& process() const noexcept { return definitions_.process(); }
  // As headers say.
  [[nodiscard]] std::uint64_t records() const noexcept { return records_; }
  // When the trace began: as the process says, but not later than its first record.
  [[nodiscard]] std::uint64_t start_ns() const noexcept;
  // When its last record was, as headers say; at least start_ns().
  [[nodiscard]] std::uint64_t last_ns() const noexcept;
  // The trace was not ended: the program was killed, or the file was cut.
  [[nodiscard]] bool incomplete() const noexcept { return blocks_.incomplete(); }
  // Of opening; for_each() has its own.
  [[nodiscard]] const Problems& problems() const noexcept { return problems_; }
  [[nodiscard]] std::uint64_t file_bytes() const noexcept { return blocks_.file_bytes(); }

  // Calls visit(record) in order of time; records of one time stand as in the file. Records of an
  // older version are reported as records of the present one. `visit` may return false, which ends
  // it. Two passes see the same records in the same order.
  template <class Visit>
  Problems for_each(Visit&& visit, Columns wanted = kAllColumns,
                    const Progress& progress = {}) const;

 private:
  friend class Merge;
  File() = default;
  void load(Unpacker& unpacker, const BlockPlace& place);

  BlockFile blocks_;
  Definitions definitions_;
  std::vector<BlockPlace> record_blocks_;  // by first time
  std::uint64_t records_ = 0;
  Problems problems_;
};

// The records of all blocks, merged. A block is open from when its first time is due until its last
// record.
class Merge {
 public:
  Merge(const File& file, Columns wanted, const Progress& progress)
      : file_(file), wanted_(wanted), progress_(progress) {}

  // The next records that no other block comes between; empty: there are no more. Valid until the
  // next call.
  [[nodiscard]] std::span<const PleatTraceEvent> next();
  [[nodiscard]] const Problems& problems() const noexcept { return problems_; }

 private:
  struct Open {
    RecordBlock block;
    std::span<const PleatTraceEvent> rest;
    std::uint64_t offset = 0;
    std::size_t held_bytes = 0;
  };
  using Opened = std::unique_ptr<Open>;
  // True: `b` comes before `a`. For a heap.
  static bool later(const Opened& a, const Opened& b) noexcept;

  void open_due();
  void open(const BlockPlace& place);
  // Of the open block `run`: how many of its records come before all others.
  [[nodiscard]] std::size_t run_of(const Open& first) const noexcept;
  void advance(Opened current, std::size_t passed);

  const File& file_;
  const Columns wanted_;
  const Progress& progress_;
  Unpacker unpacker_;
  std::vector<Opened> open_;  // a heap, the earliest record first
  std::size_t held_bytes_ = 0;
  std::size_t next_block_ = 0;
  std::size_t postponed_ = ~std::size_t{0};  // the last block that had to wait
  std::uint64_t done_ = 0;
  std::size_t passed_ = 0;  // of the first block: what next() returned last
  Problems problems_;
};

template <class Visit>
Problems File::for_each(Visit&& visit, Columns wanted, const Progress& progress) const {
  std::optional<Version1> version1;
  if (blocks_.version() == 1) {
    version1.emplace();
    wanted |= Version1::kColumns;
  }
  Merge merge(*this, wanted, progress);
  while (true) {
    const std::span<const PleatTraceEvent> run = merge.next();
    if (run.empty()) return merge.problems();
    for (const PleatTraceEvent& stored : run) {
      const PleatTraceEvent& event = version1 ? version1->translate(stored) : stored;
      if constexpr (std::is_same_v<decltype(visit(event)), bool>) {
        if (!visit(event)) return merge.problems();
      } else {
        visit(event);
      }
    }
  }
}

}  // namespace pleat::trace
