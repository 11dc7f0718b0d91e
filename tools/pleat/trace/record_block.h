// The records of one block, unpacked a few hundred at a time, so that they stay in the processor's
// cache and many blocks can be open at once.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "block_file.h"

namespace pleat::trace {

// Columns as a set of bits. A column that is left out reads as 0.
using Columns = std::uint32_t;
[[nodiscard]] constexpr Columns column_bit(Column column) noexcept {
  return 1u << static_cast<unsigned>(column);
}
inline constexpr Columns kAllColumns = ~0u;

class RecordBlock {
 public:
  // Takes the block's bytes. False: they are no columns of `count` records.
  [[nodiscard]] bool open(BlockBytes bytes, std::uint32_t count, Columns wanted);

  // The least and the greatest time of its records.
  [[nodiscard]] std::uint64_t first_time() const noexcept { return first_time_; }
  [[nodiscard]] std::uint64_t last_time() const noexcept { return last_time_; }
  // They were not in order of time; now they are.
  [[nodiscard]] bool was_unsorted() const noexcept { return !sorted_.empty(); }
  // Of values that no record can have; they were replaced.
  [[nodiscard]] std::uint64_t odd_values() const noexcept { return odd_; }
  // What it holds in memory.
  [[nodiscard]] std::size_t held_bytes() const noexcept {
    return bytes_.size + sizeof *this + sizeof(PleatTraceEvent) * (kBatch + sorted_.capacity());
  }

  // The next records in order of time; empty: there are no more. Valid until the next call.
  [[nodiscard]] std::span<const PleatTraceEvent> next();

 private:
  static constexpr std::size_t kBatch = 256;
  static constexpr std::size_t kColumns = kColumnsEnd;

  struct Reading {
    const std::uint8_t* at = nullptr;
    std::uint64_t previous = 0;
    std::uint8_t id = 0;
    Coding coding = Coding::kSame;
  };
  [[nodiscard]] bool parse(Columns wanted);
  [[nodiscard]] bool add_column(std::uint8_t id, Coding coding,
                                std::span<const std::uint8_t> bytes);
  void look_at_times() noexcept;
  void sort();
  [[nodiscard]] std::size_t decode() noexcept;

  BlockBytes bytes_;
  std::uint32_t left_ = 0;
  std::uint64_t first_time_ = 0, last_time_ = 0;
  bool in_order_ = true;
  std::uint64_t odd_ = 0;
  std::array<Reading, kColumns> columns_{};  // that differ between records; changes come last
  std::size_t column_count_ = 0;
  std::unique_ptr<PleatTraceEvent[]> batch_;
  std::vector<PleatTraceEvent> sorted_;
};

}  // namespace pleat::trace
