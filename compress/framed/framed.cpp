#include "compress/framed/framed.h"

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "compress/framed/frame_entry.h"
#include "compress/kernels.h"

namespace pleat::compress {
namespace {

// Frames are measured and packed in stretches of this size, so that packing finds the source in a
// cache.
constexpr std::size_t kStretchBytes = 256 * 1024;
constexpr std::size_t kTileBytes = 256 * 1024;  // of codes, in place

struct Entry {
  unsigned width;
  bool without_zeros;
  std::size_t others;
  bool valid;
};

template <class Word>
Entry read_entry(const void* entries, std::size_t frame) noexcept {
  const auto entry = load_entry<Word>(entries, frame);
  const unsigned width = entry.width & ~kFrameWithoutZeros;
  return {width, (entry.width & kFrameWithoutZeros) != 0, entry.others, width <= 8 * sizeof(Word)};
}
Entry read_entry(ElementType type, const void* entries, std::size_t frame) noexcept {
  Entry entry = element_size(type) == 2   ? read_entry<std::uint16_t>(entries, frame)
                : element_size(type) == 4 ? read_entry<std::uint32_t>(entries, frame)
                                          : read_entry<std::uint64_t>(entries, frame);
  if (!is_floating(type))
    entry.valid = entry.valid && !entry.without_zeros && (entry.width & (entry.width - 1)) == 0;
  return entry;
}

// The first element of a frame.
std::size_t first_element(const FramedLayout& layout, std::size_t frame,
                          std::size_t elements) noexcept {
  const std::size_t first = frame * layout.frame_elements;
  return first < elements ? first : elements;
}

std::size_t frames_per_item(const FramedLayout& layout) noexcept {
  return kBlockElements / layout.frame_elements;
}

// Runs body(first frame, last frame) over [first, last).
template <class Body>
void run_frames(const FramedLayout& layout, const Executor& executor, std::size_t first,
                std::size_t last, const Body& body) noexcept {
  const std::size_t step = frames_per_item(layout);
  run_parts(executor, ceil_divide(last - first, step), kGrainBlocks,
            [&](std::size_t begin, std::size_t end) {
              const std::size_t to = first + end * step;
              body(first + begin * step, to < last ? to : last);
            });
}

void measure(const Request& request, const FramedLayout& layout, std::uint8_t* entries,
             std::size_t first, std::size_t last) noexcept {
  const std::size_t elements = request.span.elements, size = element_size(request.span.type);
  const std::size_t begin = first_element(layout, first, elements);
  kernels().measure_frames[static_cast<unsigned>(request.span.type)](
      static_cast<const std::uint8_t*>(request.span.data) + begin * size,
      first_element(layout, last, elements) - begin, entries + first * layout.entry_bytes);
}

// Packs frames; `codes`: where the codes of frame `first` go.
void pack(const Request& request, const FramedLayout& layout, const std::uint8_t* entries,
          std::size_t first, std::size_t last, std::uint8_t* codes) noexcept {
  const std::size_t elements = request.span.elements, size = element_size(request.span.type);
  const std::size_t begin = first_element(layout, first, elements);
  kernels().pack_frames[static_cast<unsigned>(request.span.type)](
      static_cast<const std::uint8_t*>(request.span.data) + begin * size,
      first_element(layout, last, elements) - begin, entries + first * layout.entry_bytes, codes);
}

// The place of a stretch's codes depends on all stretches before it. A thread that has measured a
// stretch waits until the one before has been measured, too; packing runs in parallel. Threads take
// numbers in order, so the thread waited for already has its number and waits only for lower ones.
class InOrder {
 public:
  std::size_t take() noexcept { return taken_.fetch_add(1, std::memory_order_relaxed); }
  // Waits for its turn. Returns the sum of `bytes` over lower numbers; SIZE_MAX once the sum
  // exceeds `most`.
  std::size_t place(std::size_t number, std::size_t bytes, std::size_t most) noexcept {
    for (unsigned spins = 0; turn_.load(std::memory_order_acquire) != number; ++spins)
      if (spins >= 1000) std::this_thread::yield();
    const std::size_t before = sum_;
    sum_ = before == SIZE_MAX || bytes > most - before ? SIZE_MAX : before + bytes;
    const bool fits = sum_ != SIZE_MAX;
    turn_.store(number + 1, std::memory_order_release);
    return fits ? before : SIZE_MAX;
  }
  [[nodiscard]] std::size_t sum() const noexcept { return sum_; }  // once all are placed

 private:
  std::atomic<std::size_t> taken_{0}, turn_{0};
  std::size_t sum_ = 0;  // bytes before the stretch whose turn it is
};

EncodeResult finish(const Request& request, const FramedLayout& layout, std::size_t code_bytes,
                    std::uint8_t* payload) noexcept {
  const std::size_t table_end = kHeaderBytes + layout.frames * layout.entry_bytes;
  std::memset(payload + table_end, 0, layout.codes_offset - table_end);
  Header header = request.header(PayloadKind::kFramed);
  header.code_bytes = code_bytes;
  header.payload_bytes = layout.codes_offset + code_bytes;
  std::memcpy(payload, &header, sizeof header);
  return {Status::kOk, layout.codes_offset + code_bytes};
}

std::size_t most_bytes(const Request& request, std::size_t capacity) noexcept {
  const std::size_t below_raw = request.raw_bytes() - 1;
  return capacity < below_raw ? capacity : below_raw;
}

}  // namespace

FramedLayout::FramedLayout(ElementType type, std::size_t elements) noexcept
    : frame_elements(is_floating(type) ? kFloatFrame : kIntegerFrame),
      frames(ceil_divide(elements, frame_elements)),
      entry_bytes(2 * element_size(type)),
      codes_offset(kHeaderBytes + ceil_divide(frames * entry_bytes, 64) * 64) {}

bool has_frames(ElementType type) noexcept {
  return is_floating(type) || type == ElementType::kInt64 || type == ElementType::kInt32;
}

std::size_t frames_bytes(const FramedLayout& layout, ElementType type, std::size_t elements,
                         const void* entries, std::size_t first, std::size_t last) noexcept {
  std::size_t bytes = 0;
  for (std::size_t frame = first; frame < last; ++frame) {
    const Entry entry = read_entry(type, entries, frame);
    const std::size_t count =
        first_element(layout, frame + 1, elements) - first_element(layout, frame, elements);
    if (!entry.valid || (entry.without_zeros && entry.others >= count)) return SIZE_MAX;
    bytes += entry.without_zeros ? kFrameBitmap + frame_codes(entry.others, entry.width)
                                 : frame_codes(count, entry.width);
  }
  return bytes;
}

bool encode_framed(const Request& request, const Executor& executor, std::uint8_t* payload,
                   std::size_t capacity, EncodeResult* result) noexcept {
  const ElementType type = request.span.type;
  const std::size_t elements = request.span.elements;
  const FramedLayout layout(type, elements);
  const std::size_t most = most_bytes(request, capacity);
  if (layout.codes_offset > most) return false;
  std::uint8_t* const entries = payload + kHeaderBytes;
  const std::size_t stretch = kStretchBytes / (layout.frame_elements * element_size(type));
  const std::size_t stretches = ceil_divide(layout.frames, stretch);
  std::uint8_t* const codes = payload + layout.codes_offset;
  InOrder order;
  run_parts(executor, stretches, kGrainBytes / kStretchBytes, [&](std::size_t, std::size_t) {
    for (std::size_t at; (at = order.take()) < stretches;) {
      const std::size_t first = at * stretch;
      const std::size_t last = at + 1 < stretches ? first + stretch : layout.frames;
      measure(request, layout, entries, first, last);
      const std::size_t bytes = frames_bytes(layout, type, elements, entries, first, last);
      const std::size_t place = order.place(at, bytes, most - layout.codes_offset);
      if (place != SIZE_MAX) pack(request, layout, entries, first, last, codes + place);
    }
  });
  const std::size_t code_bytes = order.sum();
  if (code_bytes == SIZE_MAX) return false;
  *result = finish(request, layout, code_bytes, payload);
  return true;
}

bool encode_framed_in_place(const Request& request, const Executor& executor, std::uint8_t* buffer,
                            std::size_t capacity, EncodeResult* result) noexcept {
  const ElementType type = request.span.type;
  const std::size_t elements = request.span.elements, size = element_size(type);
  const FramedLayout layout(type, elements);
  const std::size_t table_bytes = layout.frames * layout.entry_bytes;
  struct Freed {
    std::uint8_t* bytes;
    ~Freed() { std::free(bytes); }
  };
  const Freed table{static_cast<std::uint8_t*>(std::malloc(table_bytes))};
  if (table.bytes == nullptr) return false;
  run_frames(layout, executor, 0, layout.frames, [&](std::size_t from, std::size_t to) {
    measure(request, layout, table.bytes, from, to);
  });

  // Frames are packed into a bounce buffer and copied over elements already read. The first tile
  // must reach as far as header, table and its own codes do, or they would overtake the reader.
  // Later tiles may have any size, as long as no later frame falls behind again.
  std::size_t end = layout.codes_offset, first_tile = 0, first_bytes = 0;
  for (std::size_t frame = 0; frame < layout.frames; ++frame) {
    end += frames_bytes(layout, type, elements, table.bytes, frame, frame + 1);
    if (end > first_element(layout, frame + 1, elements) * size || frame == 0) {
      first_tile = frame + 2 < layout.frames ? frame + 2 : layout.frames;
      first_bytes = 0;
    }
    if (frame < first_tile) first_bytes = end - layout.codes_offset;
  }
  if (end > most_bytes(request, capacity)) return false;
  const std::size_t frame_most = kFrameBitmap + layout.frame_elements * size;
  const Freed bounce{static_cast<std::uint8_t*>(
      std::malloc((first_bytes > kTileBytes ? first_bytes : kTileBytes) + frame_most))};
  if (bounce.bytes == nullptr) return false;

  std::size_t written = 0;
  for (std::size_t frame = 0; frame < layout.frames;) {
    std::size_t last = frame, bytes = 0;
    while (last < layout.frames && (last < first_tile || bytes < kTileBytes)) {
      bytes += frames_bytes(layout, type, elements, table.bytes, last, last + 1);
      ++last;
    }
    run_frames(layout, executor, frame, last, [&](std::size_t from, std::size_t to) {
      pack(request, layout, table.bytes, from, to,
           bounce.bytes + frames_bytes(layout, type, elements, table.bytes, frame, from));
    });
    std::memcpy(buffer + layout.codes_offset + written, bounce.bytes, bytes);
    written += bytes;
    frame = last;
  }
  std::memcpy(buffer + kHeaderBytes, table.bytes, table_bytes);
  *result = finish(request, layout, written, buffer);
  return true;
}

Status decode_framed(const Header& header, const std::uint8_t* payload, void* target,
                     const Executor& executor) noexcept {
  const auto type = static_cast<ElementType>(header.type);
  if (!has_frames(type)) return Status::kCorrupt;
  const FramedLayout layout(type, header.elements);
  if (layout.codes_offset > header.payload_bytes) return Status::kCorrupt;
  const std::uint8_t* const entries = payload + kHeaderBytes;
  const std::size_t code_bytes = header.payload_bytes - layout.codes_offset;
  if (header.code_bytes != code_bytes ||
      frames_bytes(layout, type, header.elements, entries, 0, layout.frames) != code_bytes)
    return Status::kCorrupt;
  run_frames(layout, executor, 0, layout.frames, [&](std::size_t from, std::size_t to) {
    const std::size_t begin = first_element(layout, from, header.elements);
    kernels().unpack_frames[header.type](
        payload + layout.codes_offset +
            frames_bytes(layout, type, header.elements, entries, 0, from),
        first_element(layout, to, header.elements) - begin, entries + from * layout.entry_bytes,
        static_cast<std::uint8_t*>(target) + begin * element_size(type));
  });
  return Status::kOk;
}

}  // namespace pleat::compress
