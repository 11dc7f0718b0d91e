#include "block_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zstd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>

#include "numbers.h"
#include "read_at.h"

namespace pleat::trace {
namespace {

// Packed, a block is at most a little larger than unpacked.
constexpr std::uint64_t kMostStoredBytes = kMostRawBytes + (kMostRawBytes >> 7) + 1024;
// A sound header lies at most so far behind a damaged one.
constexpr std::uint64_t kSearchBytes = kMostStoredBytes + 2 * sizeof(BlockHeader);
constexpr std::size_t kSearchStep = 1u << 20;

bool is_sound(const BlockHeader& header) noexcept {
  if (header.magic != kBlockMagic || header.check != header_check(header)) return false;
  if (header.raw_bytes > kMostRawBytes || header.stored_bytes > kMostStoredBytes) return false;
  if (header.packing > static_cast<std::uint8_t>(Packing::kZstd)) return false;
  if (header.packing == static_cast<std::uint8_t>(Packing::kNone) &&
      header.stored_bytes != header.raw_bytes) {
    return false;
  }
  return header.type != static_cast<std::uint8_t>(BlockType::kRecords) ||
         header.count <= kMostRecords;
}

}  // namespace

// ---- unpacking ----------------------------------------------------------------------------------

Unpacker::Unpacker() : context_(ZSTD_createDCtx()) {
  if (context_ == nullptr) throw std::bad_alloc();
}
Unpacker::~Unpacker() { ZSTD_freeDCtx(context_); }

bool Unpacker::unpack(std::span<const std::uint8_t> packed, std::uint8_t* raw,
                      std::size_t raw_bytes) noexcept {
  const std::size_t done =
      ZSTD_decompressDCtx(context_, raw, raw_bytes, packed.data(), packed.size());
  return ZSTD_isError(done) == 0 && done == raw_bytes;
}

// ---- opening ------------------------------------------------------------------------------------

BlockFile::~BlockFile() {
  if (file_ >= 0) ::close(file_);
}

std::string BlockFile::open(const std::string& path) {
  file_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file_ < 0) return std::strerror(errno);
  struct stat facts {};
  if (::fstat(file_, &facts) != 0) return std::strerror(errno);
  if (!S_ISREG(facts.st_mode)) return S_ISDIR(facts.st_mode) ? "this is a folder" : "no plain file";
  size_ = static_cast<std::uint64_t>(facts.st_size);
  if (size_ == 0) return "this file is empty";
  FileHeader header{};
  const std::size_t present = std::min<std::uint64_t>(size_, sizeof header);
  if (!read_at(0, &header, present)) {
    return errno != 0 ? std::strerror(errno) : "this file cannot be read";
  }
  if (std::memcmp(header.magic, kMagic, std::min(present, sizeof kMagic)) != 0)
    return "this is no trace of Pleat";
  if (present < sizeof header) return "this trace was cut off before it began";
  if (header.version > kVersion) {
    return "the trace is of version " + std::to_string(header.version) + ", this pleat reads " +
           std::to_string(kVersion);
  }
  if (header.version == 0) return "this is no trace of Pleat";
  version_ = header.version;
  scan();
  return {};
}

bool BlockFile::read_at(std::uint64_t offset, void* to, std::size_t bytes) const {
  return trace::read_at(file_, offset, to, bytes);
}

bool BlockFile::header_at(std::uint64_t offset, BlockHeader& header) const {
  return offset <= end_ && end_ - offset >= sizeof header &&
         read_at(offset, &header, sizeof header) && is_sound(header);
}

// ---- walking ------------------------------------------------------------------------------------

void BlockFile::scan() {
  end_ = size_;
  FileEnd end{};
  if (size_ >= sizeof(FileHeader) + sizeof end && read_at(size_ - sizeof end, &end, sizeof end) &&
      std::memcmp(end.magic, kEndMagic, sizeof kEndMagic) == 0) {
    end_ = size_ - sizeof end;
    index_offset_ = end.index_offset;
    incomplete_ = false;
  }
  std::uint64_t offset = sizeof(FileHeader);
  while (offset < end_) {
    BlockHeader header{};
    if (header_at(offset, header)) {
      const std::uint64_t next = offset + sizeof header + header.stored_bytes;
      if (next > end_) break;  // cut off within the block
      const bool is_index = header.type == static_cast<std::uint8_t>(BlockType::kIndex);
      if (!is_index && header.raw_bytes > 0) blocks_.push_back({offset, header});
      offset = next;
      continue;
    }
    if (incomplete_ && end_ - offset < sizeof header) break;  // cut off within the header
    ++damaged_;
    offset = past_damage(offset);
    if (offset == 0) break;
  }
}

std::uint64_t BlockFile::past_damage(std::uint64_t offset) {
  BlockHeader header{};
  BlockHeader next{};
  if (end_ - offset >= sizeof header && read_at(offset, &header, sizeof header)) {
    const std::uint64_t stated = offset + sizeof header + header.stored_bytes;
    if (header_at(stated, next)) return stated;
  }
  if (const std::uint64_t listed = in_index_behind(offset)) return listed;
  return search_behind(offset);
}

std::uint64_t BlockFile::in_index_behind(std::uint64_t offset) {
  if (!index_read_) read_index();
  BlockHeader header{};
  for (auto it = std::upper_bound(index_.begin(), index_.end(), offset); it != index_.end(); ++it) {
    if (*it - offset > kSearchBytes) return 0;  // searching finds what is nearer
    if (header_at(*it, header)) return *it;
  }
  return 0;
}

std::uint64_t BlockFile::search_behind(std::uint64_t offset) const {
  std::vector<char> window;
  const std::uint64_t last = end_ - offset > kSearchBytes ? offset + kSearchBytes : end_;
  for (std::uint64_t begin = offset + 1; begin < last; begin += kSearchStep) {
    // A magic that lies across the border is found from the window before.
    window.resize(std::min<std::uint64_t>(kSearchStep + sizeof kBlockMagic - 1, last - begin));
    if (!read_at(begin, window.data(), window.size())) return 0;
    const char* const end = window.data() + window.size();
    for (const char* at = window.data();; ++at) {
      at = static_cast<const char*>(
          ::memmem(at, static_cast<std::size_t>(end - at), &kBlockMagic, sizeof kBlockMagic));
      if (at == nullptr) break;
      BlockHeader header{};
      const std::uint64_t found = begin + static_cast<std::uint64_t>(at - window.data());
      if (header_at(found, header)) return found;
    }
  }
  return 0;
}

// An index that is not sound is none.
void BlockFile::read_index() {
  index_read_ = true;
  BlockPlace place{index_offset_, {}};
  BlockBytes bytes;
  Unpacker unpacker;
  if (incomplete_ || !header_at(place.offset, place.header) ||
      place.header.type != static_cast<std::uint8_t>(BlockType::kIndex) ||
      !read(place, unpacker, bytes)) {
    return;
  }
  Cursor cursor(bytes.span());
  for (std::uint32_t i = 0; i < place.header.count && cursor.left() > 0; ++i) {
    const std::uint64_t offset = cursor.number();
    for (int other = 0; other < 4; ++other) (void)cursor.number();
    if (cursor.failed() || (!index_.empty() && offset <= index_.back())) break;
    index_.push_back(offset);
  }
}

// ---- reading ------------------------------------------------------------------------------------

bool BlockFile::read(const BlockPlace& place, Unpacker& unpacker, BlockBytes& bytes) const {
  const BlockHeader& header = place.header;
  const std::size_t stored = header.stored_bytes;
  if (place.offset > size_ || size_ - place.offset < sizeof header + stored) return false;
  auto packed = std::make_unique_for_overwrite<std::uint8_t[]>(stored);
  if (!read_at(place.offset + sizeof header, packed.get(), stored)) return false;
  bytes.size = header.raw_bytes;
  if (header.packing == static_cast<std::uint8_t>(Packing::kNone)) {
    bytes.data = std::move(packed);
    return true;
  }
  bytes.data = std::make_unique_for_overwrite<std::uint8_t[]>(bytes.size);
  return unpacker.unpack({packed.get(), stored}, bytes.data.get(), bytes.size);
}

}  // namespace pleat::trace
