#include "interpose/trace/block_writer.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zstd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <type_traits>

namespace pleat::trace {
namespace {

constexpr int kLevel = 1;  // 3 takes 4 % less room and twice the time
// Of a job with few events each flush is a small block: there 6 % less room costs next to nothing.
constexpr int kLevelOfSmall = 6;
constexpr std::size_t kSmall = std::size_t{16} << 10;

}  // namespace

void Output::raw(const void* data, std::size_t bytes) noexcept {
  std::uint8_t* const at = bytes_.reserve(bytes);
  if (at == nullptr) return fail();
  std::memcpy(at, data, bytes);
  bytes_.advance(bytes);
}

// ---- the file -----------------------------------------------------------------------------------

int BlockWriter::create(const char* path) noexcept {
  file_ = ::open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
  if (file_ < 0) return errno;
  if (file_ < 10) {  // the job may count on the low ones
    if (const int higher = ::fcntl(file_, F_DUPFD_CLOEXEC, 10); higher >= 0) {
      ::close(file_);
      file_ = higher;
    }
  }
  struct stat facts {};
  ::fstat(file_, &facts);
  device_ = facts.st_dev;
  inode_ = facts.st_ino;
  offset_ = 0;
  state_ = FileState::kOpen;
  error_ = 0;
  blocks_ = 0;
  texts_ = frames_ = stacks_ = modules_ = 0;
  index_.clear();
  if (zstd_ == nullptr) zstd_ = ::ZSTD_createCCtx();
  if (zstd_ == nullptr) {
    close();
    return ENOMEM;
  }
  auto* const context = static_cast<ZSTD_CCtx*>(zstd_);
  ::ZSTD_CCtx_setParameter(context, ZSTD_c_checksumFlag, 1);
  FileHeader header{};
  std::memcpy(header.magic, kMagic, sizeof header.magic);
  header.version = kVersion;
  put(&header, sizeof header);
  return error_;
}

void BlockWriter::close() noexcept {
  if (file_ >= 0 && is_ours()) ::close(file_);
  file_ = -1;
}

// The job may have closed the descriptor, and its number may be another file's by now.
bool BlockWriter::is_ours() noexcept {
  struct stat facts {};
  return ::fstat(file_, &facts) == 0 && facts.st_dev == device_ && facts.st_ino == inode_;
}

void BlockWriter::put(const void* data, std::size_t bytes) noexcept {
  const auto* at = static_cast<const char*>(data);
  while (bytes > 0 && state_ == FileState::kOpen) {
    const ssize_t written = ::write(file_, at, bytes);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) {
      error_ = written < 0 ? errno : ENOSPC;
      state_ = FileState::kFailed;
      return;
    }
    at += written;
    bytes -= static_cast<std::size_t>(written);
    offset_ += static_cast<std::uint64_t>(written);
  }
}

void BlockWriter::block(BlockType type, std::uint32_t count, std::uint64_t first_time,
                        std::uint64_t last_time) noexcept {
  if (state_ != FileState::kOpen) return;
  const std::span<const std::uint8_t> raw = raw_.bytes();
  const std::size_t room = ZSTD_compressBound(raw.size());
  packed_.clear();
  std::uint8_t* const packed = packed_.reserve(sizeof(BlockHeader) + room);
  if (packed == nullptr || raw_.failed()) {  // no memory: the records are lost, not the job
    error_ = ENOMEM;
    state_ = FileState::kFailed;
    return;
  }
  if (!is_ours()) {
    state_ = FileState::kLost;
    error_ = EBADF;
    return;
  }
  BlockHeader header{};
  header.magic = kBlockMagic;
  header.type = static_cast<std::uint8_t>(type);
  header.raw_bytes = static_cast<std::uint32_t>(raw.size());
  header.count = count;
  header.first_time = first_time;
  header.last_time = last_time;
  auto* const context = static_cast<ZSTD_CCtx*>(zstd_);
  ::ZSTD_CCtx_setParameter(context, ZSTD_c_compressionLevel,
                           raw.size() < kSmall ? kLevelOfSmall : kLevel);
  const std::size_t stored =
      ::ZSTD_compress2(context, packed + sizeof header, room, raw.data(), raw.size());
  if (::ZSTD_isError(stored) != 0) {
    error_ = EIO;
    state_ = FileState::kFailed;
    return;
  }
  if (type != BlockType::kIndex && !has_room(sizeof header + stored)) {
    state_ = FileState::kFull;
    return;
  }
  header.packing = static_cast<std::uint8_t>(Packing::kZstd);
  header.stored_bytes = static_cast<std::uint32_t>(stored);
  header.check = header_check(header);
  std::memcpy(packed, &header, sizeof header);
  if (type != BlockType::kIndex) {
    index_.number(offset_);
    index_.number(header.type);
    index_.number(count);
    index_.number(first_time);
    index_.number(last_time);
    ++blocks_;
  }
  put(packed, sizeof header + stored);
}

// For a block of so many, and for the end of the file with the index.
bool BlockWriter::has_room(std::size_t bytes) noexcept {
  constexpr std::size_t kIndexEntry = 5 * kMostNumberBytes;
  const std::size_t end = 2 * sizeof(BlockHeader) + sizeof(FileEnd) +
                          ZSTD_compressBound(index_.bytes().size() + kIndexEntry);
  return most_bytes_ == 0 || offset_ + bytes + end <= most_bytes_;
}

void BlockWriter::process(std::string_view json) noexcept {
  raw_.clear();
  raw_.raw(json.data(), json.size());
  block(BlockType::kProcess, 1, 0, 0);
}

void BlockWriter::end() noexcept {
  if (file_ < 0) return;
  if (state_ == FileState::kFull) state_ = FileState::kOpen;  // the end finds room still
  const std::uint64_t at = offset_;
  raw_.clear();
  const std::span<const std::uint8_t> index = index_.bytes();
  if (index_.failed() || index.size() > kMostRawBytes) return;  // the reader does without
  raw_.raw(index.data(), index.size());
  block(BlockType::kIndex, blocks_, 0, 0);
  if (state_ != FileState::kOpen) return;
  FileEnd end{};
  end.index_offset = at;
  std::memcpy(end.magic, kEndMagic, sizeof end.magic);
  put(&end, sizeof end);
}

// ---- names --------------------------------------------------------------------------------------

void BlockWriter::names(Names& names, Modules& modules) noexcept {
  // A frame refers to texts that were there before it, a stack to frames: so stacks are counted
  // first, and written last.
  const std::size_t stacks = names.stacks(), frames = names.frames(), texts = names.texts();
  Output& modules_of_frames = part_;
  modules_of_frames.clear();
  for (std::size_t i = frames_; i < frames; ++i) {
    const Frame& frame = names.frame_at(i);
    modules_of_frames.number(static_cast<std::uint64_t>(frame.kind));
    if (frame.kind == FrameKind::kPython) {
      modules_of_frames.number(frame.name);
      modules_of_frames.number(frame.file);
      modules_of_frames.number(frame.line);
    } else {
      const std::uint32_t module = modules.at(frame.address);
      modules_of_frames.number(module);
      modules_of_frames.number(module != 0 ? frame.address - modules[module - 1].base : 0);
    }
  }
  constexpr std::size_t kMostInBlock = 2048;  // of texts of at most 4 KiB: within kMostRawBytes
  const auto write = [&](BlockType type, std::size_t& from, std::size_t to, auto&& one) {
    while (from < to) {
      const std::size_t count = std::min(to - from, kMostInBlock);
      raw_.clear();
      raw_.number(from + 1);
      for (std::size_t i = from; i < from + count; ++i) one(i);
      block(type, static_cast<std::uint32_t>(count), 0, 0);
      from += count;
    }
  };
  write(BlockType::kStrings, texts_, texts, [&](std::size_t i) { raw_.text(names.text_at(i)); });
  write(BlockType::kModules, modules_, modules.size(), [&](std::size_t i) {
    raw_.text(modules[i].path);
    raw_.text({reinterpret_cast<const char*>(modules[i].build_id), modules[i].build_id_bytes});
  });
  if (frames_ < frames) {
    raw_.clear();
    raw_.number(frames_ + 1);
    const std::span<const std::uint8_t> all = modules_of_frames.bytes();
    raw_.raw(all.data(), all.size());
    block(BlockType::kFrames, static_cast<std::uint32_t>(frames - frames_), 0, 0);
    frames_ = frames;
  }
  write(BlockType::kStacks, stacks_, stacks, [&](std::size_t i) {
    raw_.number(names.stack_at(i).parent);
    raw_.number(names.stack_at(i).frame);
  });
}

// ---- records ------------------------------------------------------------------------------------

// Writes a column: what `coded(record, the one before)` makes of each record, or, where all have
// the same `value(record)`, that once.
template <class Value, class Coded>
void BlockWriter::column(std::uint8_t id, Coding coding, std::span<const PleatTraceEvent> records,
                         Value&& value, Coded&& coded) noexcept {
  const auto first = value(records[0]);
  std::size_t same = 1;
  while (same < records.size() && value(records[same]) == first) ++same;
  part_.clear();
  if (same == records.size()) {
    coding = Coding::kSame;
    if constexpr (std::is_signed_v<decltype(first)>) {
      part_.number(zigzag(first));
    } else {
      part_.number(first);
    }
  } else {
    const PleatTraceEvent none{};
    const PleatTraceEvent* before = &none;
    part_.numbers(records.size(), [&](std::size_t i) {
      const std::uint64_t number = coded(records[i], *before);
      before = &records[i];
      return number;
    });
  }
  const std::span<const std::uint8_t> bytes = part_.bytes();
  const std::uint8_t head[2] = {id, static_cast<std::uint8_t>(coding)};
  raw_.raw(head, sizeof head);
  raw_.number(bytes.size());
  raw_.raw(bytes.data(), bytes.size());
}

void BlockWriter::records(std::span<const PleatTraceEvent> records, std::uint64_t base) noexcept {
  if (records.empty()) return;
  using E = const PleatTraceEvent&;
  raw_.clear();
  const auto plain = [&](Column id, auto&& value) {
    column(
        static_cast<std::uint8_t>(id), Coding::kPlain, records,
        [&](E e) { return static_cast<std::uint64_t>(value(e)); },
        [&](E e, E) { return static_cast<std::uint64_t>(value(e)); });
  };
  const auto delta = [&](Column id, auto&& value) {
    column(static_cast<std::uint8_t>(id), Coding::kDelta, records, value, [&](E e, E before) {
      return zigzag(static_cast<std::int64_t>(value(e) - value(before)));
    });
  };
  delta(Column::kTime, [](E e) { return e.time_ns; });
  plain(Column::kKind, [](E e) { return e.kind; });
  plain(Column::kPhase, [](E e) { return e.phase; });
  plain(Column::kReason, [](E e) { return e.reason; });
  plain(Column::kDevice, [](E e) { return static_cast<unsigned>(e.device + 1); });
  plain(Column::kThread, [](E e) { return e.thread; });
  plain(Column::kOp, [](E e) { return e.op; });
  plain(Column::kStack, [](E e) { return e.stack; });
  plain(Column::kStream, [](E e) { return e.stream; });
  delta(Column::kAddress, [base](E e) { return e.address != 0 ? e.address - base : 0; });
  plain(Column::kBytes, [](E e) { return e.bytes; });
  delta(Column::kBlock, [](E e) { return e.block; });
  delta(Column::kRecord, [](E e) { return e.record; });
  delta(Column::kNode, [](E e) { return e.node; });
  plain(Column::kKey, [](E e) { return e.key; });
  for (unsigned which = 0; which < PLEAT_TRACE_CHANGES; ++which) {
    const auto id = static_cast<std::uint8_t>(static_cast<unsigned>(Column::kChange) + which);
    column(
        id, Coding::kOverRow, records, [which](E e) { return e.change[which]; },
        [which](E e, E) { return zigzag(e.change[which] - predicted(which, e.kind, e.bytes)); });
  }
  if (part_.failed()) {
    state_ = FileState::kFailed;
    error_ = ENOMEM;
    return;
  }
  block(BlockType::kRecords, static_cast<std::uint32_t>(records.size()), records.front().time_ns,
        records.back().time_ns);
}

}  // namespace pleat::trace
