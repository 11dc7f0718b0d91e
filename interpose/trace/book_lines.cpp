#include "interpose/trace/book_lines.h"

#include <algorithm>
#include <cstdio>

#include "interpose/trace/source_of_path.h"

namespace pleat::trace {
namespace {

std::string_view without_folders(std::string_view path) noexcept {
  path.remove_prefix(path.rfind('/') + 1);  // substr() would bring exceptions in
  return path;
}

// As much of a text as there is room for. Bytes of UTF-8 stay.
void copy_printable(std::string_view from, std::span<char> to) noexcept {
  std::size_t count = std::min(from.size(), to.size() - 1);
  while (count < from.size() && count > 0 && (from[count] & 0xc0) == 0x80) --count;  // whole ones
  for (std::size_t i = 0; i < count; ++i) {
    const auto byte = static_cast<unsigned char>(from[i]);
    to[i] = byte < 0x20 || byte == 0x7f ? '?' : from[i];
  }
  to[count] = '\0';
}

}  // namespace

std::string_view BookLines::text_of(std::uint32_t number) const noexcept {
  return number != 0 && number <= names_.texts() ? names_.text_at(number - 1) : "?";
}

// The innermost Python frame of the program; else of a package; else the innermost of all but
// Pleat's own.
std::uint32_t BookLines::look(std::uint32_t stack) noexcept {
  std::uint32_t innermost = 0, innermost_python = 0, package = 0;
  for (unsigned depth = 0; depth < kMostFrames && stack != 0 && stack <= names_.stacks(); ++depth) {
    const Stack& found = names_.stack_at(stack - 1);
    stack = found.parent;
    if (found.frame == 0 || found.frame > names_.frames()) continue;
    const Frame& frame = names_.frame_at(found.frame - 1);
    if (frame.kind == FrameKind::kNative) {
      if (innermost != 0) continue;
      const std::uint32_t module = modules_.at(frame.address);
      const std::string_view path = module != 0 ? modules_[module - 1].path : "";
      if (path.find("/libpleat") == std::string_view::npos) innermost = found.frame;
      continue;
    }
    if (innermost == 0) innermost = found.frame;
    if (innermost_python == 0) innermost_python = found.frame;
    const Source whose = source_of(text_of(frame.file));
    if (whose == Source::kUser) return found.frame;
    if (whose == Source::kPackage && package == 0) package = found.frame;
  }
  return package != 0 ? package : innermost_python != 0 ? innermost_python : innermost;
}

std::uint32_t BookLines::frame_of(std::uint32_t stack) noexcept {
  if (stack == 0) return 0;
  if (const std::uint32_t* const known = frames_.find(stack)) return *known;
  const std::uint32_t frame = look(stack);
  if (std::uint32_t* const place = frames_.insert(stack)) *place = frame;
  return frame;
}

void BookLines::write(std::uint32_t number, std::span<char> text) noexcept {
  if (number == 0 || number > names_.frames()) return write_text(0, text);
  const Frame& frame = names_.frame_at(number - 1);
  std::array<char, 512> line;
  if (frame.kind == FrameKind::kPython) {
    const std::string_view file = without_folders(text_of(frame.file));
    const std::string_view name = text_of(frame.name);
    std::snprintf(line.data(), line.size(), "%.*s:%u %.*s", static_cast<int>(file.size()),
                  file.data(), frame.line, static_cast<int>(name.size()), name.data());
  } else {
    const std::uint32_t module = modules_.at(frame.address);
    const std::string_view path = module != 0 ? without_folders(modules_[module - 1].path) : "?";
    const std::uint64_t base = module != 0 ? modules_[module - 1].base : frame.address;
    std::snprintf(line.data(), line.size(), "%.*s+0x%llx", static_cast<int>(path.size()),
                  path.data(), static_cast<unsigned long long>(frame.address - base));
  }
  copy_printable(line.data(), text);
}

void BookLines::write_text(std::uint32_t text_number, std::span<char> text) const noexcept {
  copy_printable(text_number == 0 ? "-" : text_of(text_number), text);
}

// ---- groups -------------------------------------------------------------------------------------

void BookLines::add(Origin place, ByteClass of, std::int64_t bytes, std::uint64_t count) noexcept {
  if (bytes <= 0) return;
  const std::uint32_t frame = frame_of(place.stack);
  const std::uint64_t id =
      (std::uint64_t{place.op} << 28 | std::uint64_t{frame} << 4 | static_cast<std::uint64_t>(of)) +
      1;
  LineGroup* const group = groups_.find_or_insert(id);
  if (group == nullptr) return;
  if (group->count == 0) *group = {place.op, frame, of, 0, 0};
  group->bytes += bytes;
  group->count += count;
}

std::size_t BookLines::largest(BookDevice& device, std::span<LineGroup> top,
                               std::size_t* all) noexcept {
  groups_.clear();
  std::int64_t unknown = device.now.bytes[static_cast<std::size_t>(ByteClass::kUnknown)];
  device.blocks.for_each([&](std::uint64_t /*id*/, const BookBlock& block) {
    const ByteClass of = block.now();
    if (of == ByteClass::kUnknown) unknown -= block.bytes;
    add(block.place(), of, block.bytes, 1);
  });
  std::int64_t chunked = std::max<std::int64_t>(device.chunked, 0);
  device.records.for_each([&](std::uint64_t /*id*/, const BookRecord& record) {
    const std::int64_t bytes = std::min(record.chunk_bytes, chunked);
    if (bytes > 0) chunked -= bytes;
    add(record.origin, ByteClass::kPayloads, bytes, 1);
  });
  add({}, ByteClass::kPayloads, chunked, 1);
  add({}, ByteClass::kUnknown, unknown, 1);

  std::size_t count = 0;
  groups_.for_each([&](std::uint64_t /*id*/, const LineGroup& group) {
    std::size_t at = count;
    while (at > 0 && top[at - 1].bytes < group.bytes) --at;
    if (at == top.size()) return;
    if (count < top.size()) ++count;
    for (std::size_t i = count - 1; i > at; --i) top[i] = top[i - 1];
    top[at] = group;
  });
  *all = groups_.size();
  return count;
}

}  // namespace pleat::trace
