#include "writer.h"

#include <sys/mman.h>
#include <unistd.h>
#include <zstd.h>

#include <algorithm>
#include <cstring>
#include <stdexcept>

namespace pleat::trace::testing {
namespace {

// Written anew, as the document says it.
std::uint64_t folded(std::int64_t value) {
  return value < 0 ? 2 * static_cast<std::uint64_t>(-(value + 1)) + 1
                   : 2 * static_cast<std::uint64_t>(value);
}

std::int64_t likely_change(int which, const PleatTraceEvent& event) {
  const auto bytes = static_cast<std::int64_t>(event.bytes);
  struct Row {
    int which, kind, sign;
  };
  constexpr Row kRows[] = {{0, PLEAT_TRACE_ALLOCATE, 1},
                           {0, PLEAT_TRACE_FREE, -1},
                           {1, PLEAT_TRACE_ALLOCATE, 1},
                           {1, PLEAT_TRACE_FREE, -1},
                           {1, PLEAT_TRACE_CHUNK_ALLOCATE, 1},
                           {1, PLEAT_TRACE_CHUNK_FREE, -1},
                           {3, PLEAT_TRACE_TAG, 1},
                           {5, PLEAT_TRACE_RESTORE, 1},
                           {5, PLEAT_TRACE_RESTORED_FREE, -1}};
  for (const Row& row : kRows)
    if (row.which == which && row.kind == event.kind) return row.sign * bytes;
  return 0;
}

std::uint64_t value_of(int column, const PleatTraceEvent& event) {
  switch (column) {
    case 1:
      return event.time_ns;
    case 2:
      return event.kind;
    case 3:
      return event.phase;
    case 4:
      return event.reason;
    case 5:
      return static_cast<std::uint64_t>(event.device + 1);
    case 6:
      return event.thread;
    case 7:
      return event.op;
    case 8:
      return event.stack;
    case 9:
      return event.stream;
    case 10:
      return event.address;
    case 11:
      return event.bytes;
    case 12:
      return event.block;
    case 13:
      return event.record;
    case 14:
      return event.node;
    case 15:
      return event.key;
    default:
      return static_cast<std::uint64_t>(event.change[column - 16]);
  }
}

Bytes coded(int column, Coding coding, const std::vector<PleatTraceEvent>& events) {
  Bytes bytes;
  std::uint64_t before = 0;
  for (const PleatTraceEvent& event : events) {
    const std::uint64_t value = value_of(column, event);
    const bool is_signed = column >= 16;
    if (coding == Coding::kDelta) {
      put_number(bytes, folded(static_cast<std::int64_t>(value - before)));
      before = value;
    } else if (coding == Coding::kOverRow) {
      put_number(bytes,
                 folded(static_cast<std::int64_t>(
                     value - static_cast<std::uint64_t>(likely_change(column - 16, event)))));
    } else {
      put_number(bytes, is_signed ? folded(static_cast<std::int64_t>(value)) : value);
      if (coding == Coding::kSame) break;
    }
  }
  return bytes;
}

}  // namespace

void put_number(Bytes& to, std::uint64_t number) {
  for (; number >= 128; number /= 128) to += static_cast<char>(number % 128 + 128);
  to += static_cast<char>(number);
}

PleatTraceEvent event(std::uint8_t kind, std::uint64_t time_ns) {
  PleatTraceEvent event{};
  event.kind = kind;
  event.time_ns = time_ns;
  event.device = -1;
  return event;
}

Bytes columns(const std::vector<PleatTraceEvent>& events, const std::map<int, Coding>& codings) {
  Bytes bytes;
  for (int column = 1; column <= 21; ++column) {
    const auto chosen = codings.find(column);
    Coding coding = column >= 16 ? Coding::kOverRow : Coding::kDelta;
    if (chosen != codings.end()) coding = chosen->second;
    const Bytes body = coded(column, coding, events);
    bytes += static_cast<char>(column);
    bytes += static_cast<char>(coding);
    put_number(bytes, body.size());
    bytes += body;
  }
  return bytes;
}

// ---- the file -----------------------------------------------------------------------------------

TraceWriter::TraceWriter() {
  file_ = "PleatTr\n";
  const std::uint32_t words[2] = {2, 0};
  file_.append(reinterpret_cast<const char*>(words), sizeof words);
}

std::size_t TraceWriter::block_as_is(BlockHeader header, const Bytes& stored) {
  header.check = header_check(header);
  const std::size_t offset = file_.size();
  file_.append(reinterpret_cast<const char*>(&header), sizeof header);
  file_ += stored;
  offsets_.push_back(offset);
  put_number(index_, offset);
  for (const std::uint64_t number : {std::uint64_t{header.type}, std::uint64_t{header.count},
                                     header.first_time, header.last_time})
    put_number(index_, number);
  return offset;
}

std::size_t TraceWriter::block(std::uint8_t type, const Bytes& raw, std::uint32_t count,
                               std::uint64_t first, std::uint64_t last) {
  BlockHeader header{};
  header.magic = 0x6b6c4250;
  header.type = type;
  header.packing = static_cast<std::uint8_t>(packing);
  header.raw_bytes = static_cast<std::uint32_t>(raw.size());
  header.count = count;
  header.first_time = first;
  header.last_time = last;
  Bytes stored = raw;
  if (packing == Packing::kZstd) {
    ZSTD_CCtx* const context = ZSTD_createCCtx();
    ZSTD_CCtx_setParameter(context, ZSTD_c_checksumFlag, 1);
    stored.resize(ZSTD_compressBound(raw.size()));
    stored.resize(ZSTD_compress2(context, stored.data(), stored.size(), raw.data(), raw.size()));
    ZSTD_freeCCtx(context);
  }
  header.stored_bytes = static_cast<std::uint32_t>(stored.size());
  return block_as_is(header, stored);
}

Bytes TraceWriter::finish() {
  flush();
  const std::uint64_t at = file_.size();
  block(7, Bytes(index_), static_cast<std::uint32_t>(offsets_.size()));
  file_.append(reinterpret_cast<const char*>(&at), sizeof at);
  return file_ += "PleatEnd";
}

// ---- definitions --------------------------------------------------------------------------------

std::uint32_t TraceWriter::add(Pending& pending, const Bytes& item) {
  pending.items += item;
  return static_cast<std::uint32_t>(pending.first + pending.count++);
}

std::uint32_t TraceWriter::string(std::string_view text) {
  if (const auto it = known_strings_.find(text); it != known_strings_.end()) return it->second;
  Bytes item;
  put_number(item, text.size());
  return known_strings_[std::string(text)] = add(strings_, item.append(text));
}

std::uint32_t TraceWriter::python_frame(std::string_view name, std::string_view file,
                                        std::uint64_t line) {
  Bytes item;
  for (const std::uint64_t number :
       {std::uint64_t{1}, std::uint64_t{string(name)}, std::uint64_t{string(file)}, line})
    put_number(item, number);
  return add(frames_, item);
}

std::uint32_t TraceWriter::native_frame(std::uint32_t module, std::uint64_t offset) {
  Bytes item;
  for (const std::uint64_t number : {std::uint64_t{2}, std::uint64_t{module}, offset})
    put_number(item, number);
  return add(frames_, item);
}

std::uint32_t TraceWriter::stack(std::uint32_t caller, std::uint32_t frame) {
  Bytes item;
  put_number(item, caller);
  put_number(item, frame);
  return add(stacks_, item);
}

std::uint32_t TraceWriter::stack_of(const std::vector<std::uint32_t>& frames) {
  std::uint32_t id = 0;
  for (const std::uint32_t frame : frames) id = stack(id, frame);
  return id;
}

std::uint32_t TraceWriter::module(std::string_view path, std::string_view build_id) {
  Bytes item;
  put_number(item, path.size());
  item += path;
  put_number(item, build_id.size());
  return add(modules_, item.append(build_id));
}

void TraceWriter::process(std::string_view json) { block(1, Bytes(json), 1); }

void TraceWriter::flush(Pending& pending, BlockType type) {
  if (pending.count == 0) return;
  Bytes raw;
  put_number(raw, pending.first);
  block(static_cast<std::uint8_t>(type), raw + pending.items, pending.count);
  pending.first += pending.count;
  pending.count = 0;
  pending.items.clear();
}

void TraceWriter::flush() {
  flush(strings_, BlockType::kStrings);
  flush(modules_, BlockType::kModules);
  flush(frames_, BlockType::kFrames);
  flush(stacks_, BlockType::kStacks);
}

// ---- records ------------------------------------------------------------------------------------

void TraceWriter::records(const std::vector<PleatTraceEvent>& events) {
  std::uint64_t first = ~std::uint64_t{0};
  std::uint64_t last = 0;
  for (const PleatTraceEvent& event : events) {
    first = std::min(first, event.time_ns);
    last = std::max(last, event.time_ns);
  }
  records(events, first, last);
}

void TraceWriter::records(const std::vector<PleatTraceEvent>& events, std::uint64_t first,
                          std::uint64_t last) {
  flush();
  block(6, columns(events, codings), static_cast<std::uint32_t>(events.size()), first, last);
}

MemoryFile::MemoryFile(const Bytes& bytes) : file_(::memfd_create("trace", MFD_CLOEXEC)) {
  if (file_ < 0 || ::write(file_, bytes.data(), bytes.size()) != static_cast<ssize_t>(bytes.size()))
    throw std::runtime_error("no file in memory");
}

MemoryFile::~MemoryFile() { ::close(file_); }

std::string MemoryFile::path() const { return "/proc/self/fd/" + std::to_string(file_); }

void MemoryFile::grow(std::int64_t bytes) const {
  if (::ftruncate(file_, bytes) != 0) throw std::runtime_error("no large file in memory");
}

}  // namespace pleat::trace::testing
