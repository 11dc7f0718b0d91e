// The blocks of a trace's file: where they are, and their bytes. Does not know what is in them.
//
// The file may hold anything. Headers are walked one after the other; past a damaged one the way
// goes on by its stated length, by the index or by the next header that is sound.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "interpose/trace/format.h"

struct ZSTD_DCtx_s;

namespace pleat::trace {

struct BlockPlace {
  std::uint64_t offset = 0;  // of its header
  BlockHeader header{};
};

// The bytes of a block, unpacked.
struct BlockBytes {
  std::unique_ptr<std::uint8_t[]> data;
  std::size_t size = 0;
  [[nodiscard]] std::span<const std::uint8_t> span() const noexcept { return {data.get(), size}; }
};

// Unpacks; keeps its state between calls. One thread at a time.
class Unpacker {
 public:
  Unpacker();
  ~Unpacker();
  Unpacker(const Unpacker&) = delete;
  Unpacker& operator=(const Unpacker&) = delete;
  // False: `packed` does not unpack to just `raw_bytes`.
  [[nodiscard]] bool unpack(std::span<const std::uint8_t> packed, std::uint8_t* raw,
                            std::size_t raw_bytes) noexcept;

 private:
  ZSTD_DCtx_s* context_;
};

class BlockFile {
 public:
  BlockFile() = default;
  ~BlockFile();
  BlockFile(const BlockFile&) = delete;
  BlockFile& operator=(const BlockFile&) = delete;

  // Empty: it is open. Else why it is not, in one line without the path.
  [[nodiscard]] std::string open(const std::string& path);

  // All whole blocks in order of the file, but for empty ones and the index.
  [[nodiscard]] const std::vector<BlockPlace>& blocks() const noexcept { return blocks_; }
  // The file has no end: the program was killed, or the file was cut.
  [[nodiscard]] bool incomplete() const noexcept { return incomplete_; }
  // Headers that were damaged.
  [[nodiscard]] std::uint64_t damaged() const noexcept { return damaged_; }
  [[nodiscard]] std::uint64_t file_bytes() const noexcept { return size_; }
  [[nodiscard]] std::uint32_t version() const noexcept { return version_; }

  // False: the bytes are not what the header says.
  [[nodiscard]] bool read(const BlockPlace& place, Unpacker& unpacker, BlockBytes& bytes) const;

 private:
  void scan();
  [[nodiscard]] bool header_at(std::uint64_t offset, BlockHeader& header) const;
  [[nodiscard]] bool read_at(std::uint64_t offset, void* to, std::size_t bytes) const;
  // Where the walk goes on behind the damaged header at `offset`; 0: nowhere.
  [[nodiscard]] std::uint64_t past_damage(std::uint64_t offset);
  [[nodiscard]] std::uint64_t in_index_behind(std::uint64_t offset);
  [[nodiscard]] std::uint64_t search_behind(std::uint64_t offset) const;
  void read_index();

  int file_ = -1;
  std::uint64_t size_ = 0;
  std::uint32_t version_ = 0;
  std::uint64_t end_ = 0;  // where blocks end: the file's end, or its FileEnd
  std::uint64_t index_offset_ = 0;
  bool index_read_ = false;
  std::vector<std::uint64_t> index_;  // offsets, ascending
  std::vector<BlockPlace> blocks_;
  bool incomplete_ = true;
  std::uint64_t damaged_ = 0;
};

}  // namespace pleat::trace
