// The numbers of a trace's file. docs/trace_format.md is the description; recorder and reader obey
// both. All numbers in the file are little-endian.
#pragma once

#include <cstddef>
#include <cstdint>

#include "torch_bridge/c_abi.h"

namespace pleat::trace {

inline constexpr char kMagic[8] = {'P', 'l', 'e', 'a', 't', 'T', 'r', '\n'};
inline constexpr std::uint32_t kVersion = 2;

// The file begins with it.
struct FileHeader {
  char magic[8];
  std::uint32_t version;
  std::uint32_t zero;
};

enum class BlockType : std::uint8_t {
  kProcess = 1,  // a JSON object
  kStrings = 2,  // first id; for each: length, bytes
  kFrames = 3,   // first id; for each: FrameKind, then two or three numbers
  kStacks = 4,   // first id; for each: parent, frame
  kModules = 5,  // first id; for each: path, build id: length and bytes
  kRecords = 6,  // columns
  kIndex = 7,    // for each block: offset, type, count, first time, last time
};
inline constexpr std::uint8_t kLastBlockType = 7;

enum class Packing : std::uint8_t { kNone = 0, kZstd = 1 };

inline constexpr std::uint32_t kBlockMagic = 0x6b6c4250;   // "PBlk"
inline constexpr std::uint32_t kMostRawBytes = 16u << 20;  // of a block
inline constexpr std::uint32_t kMostRecords = 1u << 16;    // of a block
inline constexpr std::size_t kMostStringBytes = 1u << 12;  // of a string; the rest is cut off
inline constexpr std::uint32_t kMostFrames = 256;          // of a stack; those at its root are cut

struct BlockHeader {
  std::uint32_t magic;
  std::uint8_t type;
  std::uint8_t packing;
  std::uint16_t zero;
  std::uint32_t stored_bytes;  // that follow
  std::uint32_t raw_bytes;     // once unpacked
  std::uint32_t count;         // of what it holds
  std::uint32_t zero2;
  std::uint64_t first_time;  // of records: the least and the greatest
  std::uint64_t last_time;
  std::uint64_t check;  // header_check()
};
static_assert(sizeof(BlockHeader) == 48);

// FNV-1a, 64 bits, over the header's bytes before it. What follows the header has zstd's check.
[[nodiscard]] inline std::uint64_t header_check(const BlockHeader& header) noexcept {
  std::uint64_t hash = 0xcbf29ce484222325u;
  const auto* const bytes = reinterpret_cast<const unsigned char*>(&header);
  for (std::size_t i = 0; i < offsetof(BlockHeader, check); ++i) {
    hash = (hash ^ bytes[i]) * 0x100000001b3u;
  }
  return hash;
}

// The file ends with it, if the trace was ended.
struct FileEnd {
  std::uint64_t index_offset;  // of the index's header
  char magic[8];
};
inline constexpr char kEndMagic[8] = {'P', 'l', 'e', 'a', 't', 'E', 'n', 'd'};

enum class FrameKind : std::uint8_t {
  kPython = 1,  // name, file (strings), line
  kNative = 2,  // module, offset
};

// A column of records: its id, how it is coded, the bytes that follow as a number, these.
enum class Column : std::uint8_t {
  kTime = 1,
  kKind = 2,
  kPhase = 3,
  kReason = 4,
  kDevice = 5,  // plus 1
  kThread = 6,
  kOp = 7,
  kStack = 8,
  kStream = 9,
  kAddress = 10,
  kBytes = 11,
  kBlock = 12,
  kRecord = 13,
  kNode = 14,
  kKey = 15,
  kChange = 16,  // and the five behind it
};
inline constexpr std::uint8_t kColumnsEnd = 16 + PLEAT_TRACE_CHANGES;

enum class Coding : std::uint8_t {
  kSame = 0,     // one number, of all
  kPlain = 1,    // a number for each
  kDelta = 2,    // the difference to the one before, the first to 0, zigzag
  kOverRow = 3,  // zigzag of the difference to predicted(): of changes
};

// Numbers are LEB128: seven bits a byte, the lowest first, the top bit says that more follow.
inline constexpr std::size_t kMostNumberBytes = 10;

[[nodiscard]] constexpr std::uint64_t zigzag(std::int64_t value) noexcept {
  return (static_cast<std::uint64_t>(value) << 1) ^ static_cast<std::uint64_t>(value >> 63);
}
[[nodiscard]] constexpr std::int64_t unzigzag(std::uint64_t value) noexcept {
  return static_cast<std::int64_t>(value >> 1) ^ -static_cast<std::int64_t>(value & 1);
}

// The event is of an allocator, or tells what there is: its changes count in a device's sums.
[[nodiscard]] constexpr bool changes_sums(std::uint8_t kind) noexcept {
  return kind < PLEAT_TRACE_PHASE || kind == PLEAT_TRACE_PRESENT || kind == PLEAT_TRACE_LABEL;
}

// What the change `which` of an event of `kind` over `bytes` most often is.
[[nodiscard]] constexpr std::int64_t predicted(unsigned which, std::uint8_t kind,
                                               std::uint64_t bytes) noexcept {
  const auto all = static_cast<std::int64_t>(bytes);
  const bool up = kind == PLEAT_TRACE_ALLOCATE || kind == PLEAT_TRACE_CHUNK_ALLOCATE;
  const bool down = kind == PLEAT_TRACE_FREE || kind == PLEAT_TRACE_CHUNK_FREE;
  switch (which) {
    case PLEAT_TRACE_REQUESTED:
      return kind == PLEAT_TRACE_ALLOCATE ? all : kind == PLEAT_TRACE_FREE ? -all : 0;
    case PLEAT_TRACE_ACTIVE:
      return up ? all : down ? -all : 0;
    case PLEAT_TRACE_SAVED_RAW:
      return kind == PLEAT_TRACE_TAG ? all : 0;
    case PLEAT_TRACE_RESTORED:
      return kind == PLEAT_TRACE_RESTORE ? all : kind == PLEAT_TRACE_RESTORED_FREE ? -all : 0;
    default:
      return 0;
  }
}

}  // namespace pleat::trace
