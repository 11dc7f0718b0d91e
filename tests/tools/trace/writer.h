// Writes traces for tests, from docs/trace_format.md and apart from the recorder: sound ones, and
// any that are not.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "interpose/trace/format.h"

namespace pleat::trace::testing {

using Bytes = std::string;

void put_number(Bytes& to, std::uint64_t number);

// A record with the host as its device.
[[nodiscard]] PleatTraceEvent event(std::uint8_t kind, std::uint64_t time_ns);

class TraceWriter {
 public:
  TraceWriter();

  // ---- definitions: each returns the id, and is written with the next block of records or flush()
  std::uint32_t string(std::string_view text);
  std::uint32_t python_frame(std::string_view name, std::string_view file, std::uint64_t line);
  std::uint32_t native_frame(std::uint32_t module, std::uint64_t offset);
  std::uint32_t stack(std::uint32_t caller, std::uint32_t frame);
  std::uint32_t module(std::string_view path, std::string_view build_id);
  // The innermost frame last.
  std::uint32_t stack_of(const std::vector<std::uint32_t>& frames);
  void process(std::string_view json);
  void flush();

  // ---- records
  // How a column is coded; what is not named here is 2 (time, thread, block, ...) or 3 (changes).
  std::map<int, Coding> codings;
  Packing packing = Packing::kZstd;
  // One block of at most kMostRecords. Times in the header: of the records, unless others are
  // given.
  void records(const std::vector<PleatTraceEvent>& events);
  void records(const std::vector<PleatTraceEvent>& events, std::uint64_t first, std::uint64_t last);

  // ---- whatever a test wants
  // A block of anything. Returns its offset.
  std::size_t block(std::uint8_t type, const Bytes& raw, std::uint32_t count,
                    std::uint64_t first = 0, std::uint64_t last = 0);
  // As it stands; `header.check` is set.
  std::size_t block_as_is(BlockHeader header, const Bytes& stored);
  Bytes& bytes() noexcept { return file_; }
  // Offsets of all blocks so far.
  [[nodiscard]] const std::vector<std::size_t>& offsets() const noexcept { return offsets_; }

  // With index and end.
  [[nodiscard]] Bytes finish();

 private:
  struct Pending {
    Bytes items;
    std::uint32_t count = 0;
    std::uint64_t first = 1;
  };
  std::uint32_t add(Pending& pending, const Bytes& item);
  void flush(Pending& pending, BlockType type);

  Bytes file_;
  Bytes index_;
  std::vector<std::size_t> offsets_;
  Pending strings_, frames_, stacks_, modules_;
  std::map<std::string, std::uint32_t, std::less<>> known_strings_;
};

// The columns of a block of records.
[[nodiscard]] Bytes columns(const std::vector<PleatTraceEvent>& events,
                            const std::map<int, Coding>& codings);

// A file in memory: thousands of them cost little.
class MemoryFile {
 public:
  explicit MemoryFile(const Bytes& bytes);
  ~MemoryFile();
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;
  [[nodiscard]] std::string path() const;
  // The rest reads as zeros.
  void grow(std::int64_t bytes) const;

 private:
  int file_;
};

}  // namespace pleat::trace::testing
