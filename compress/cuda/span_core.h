// What is done once per span, by the block of threads that finishes its last tile: number the
// escaped groups, keep their bytes, write the header and the verdict. And the checks of a payload
// before it is decoded. Written against a Block, as group_core.h is against a Tile:
//
//   block.each(n, f)           f(i) for i in [0, n), in any order, by any thread
//   block.by_warps(n, g, f)    f(i, g(i), lane) for i in [0, n) and all lanes < 32, in any order;
//   all
//                              lanes have called g(i) before one calls f
//   block.ranked(n, marked, f) f(i, rank) for the i with marked(i), which have ranks 0, 1, ... in
//   order block.once(f)              f() in one thread block.sync()               all of the above
//   is visible to all threads block.publish(v, outcome)  all of the above is visible to whoever
//   sees v->outcome, host or device
#pragma once

#include "compress/cuda/group_core.h"
#include "compress/cuda/jobs.h"
#include "compress/format.h"

namespace pleat::compress {
namespace {

// GroupedLayout (format.h) for device code; a test holds the two together.
template <class T, unsigned kBits>
struct DeviceLayout {
  static constexpr uint64_t kSlotBytes = 32 * (kBits == 0 ? 1 : kBits);
  static constexpr uint64_t kMetadataBytes = 2 * sizeof(typename T::Word);  // of a group
  static constexpr uint64_t kGroupBytes = kGroupSize * sizeof(typename T::Word);
  uint64_t groups;
  uint64_t codes_offset;

  PLEAT_HD explicit DeviceLayout(uint64_t elements)
      : groups((elements + (kGroupSize - 1)) / kGroupSize),
        codes_offset(64 + (groups * kMetadataBytes + 63) / 64 * 64) {}
  PLEAT_HD uint64_t code_bytes() const { return groups * kSlotBytes; }
  PLEAT_HD uint64_t end_of_codes() const { return codes_offset + code_bytes(); }
  PLEAT_HD uint64_t escape_limit() const {
    const uint64_t share = groups / (kBits == 0 ? 8 : 64);
    return share == 0 ? 1 : share;
  }
};

// Whether the span is better kept raw than in a payload with so many escaped groups.
template <class T, unsigned kBits>
PLEAT_HD inline bool too_many_escapes(uint64_t elements, uint64_t escapes) {
  const DeviceLayout<T, kBits> layout(elements);
  if (escapes > layout.escape_limit()) return true;
  return kBits == 0 && layout.end_of_codes() + escapes * layout.kGroupBytes >=
                           64 + elements * sizeof(typename T::Word);
}

PLEAT_HD inline void write_header(const Header& header, void* payload) {
  *static_cast<Header*>(payload) = header;
}

// `source` is read again for the escaped groups.
template <class T, unsigned kBits, class Block>
PLEAT_HD inline void finish_span(Block& block, const cuda::Job& job, uint64_t escapes, bool lossy) {
  using Word = typename T::Word;
  const DeviceLayout<T, kBits> layout(job.elements);
  uint8_t* const payload = static_cast<uint8_t*>(job.target);
  if (too_many_escapes<T, kBits>(job.elements, escapes)) {
    block.once([&] {
      Header none;
      none.magic = 0;
      write_header(none, payload);
      job.verdict->escapes = static_cast<uint32_t>(escapes);
      job.verdict->payload_bytes = 0;
    });
    block.publish(job.verdict, cuda::Outcome::kKeepRaw);
    return;
  }
  const uint64_t metadata_end = 64 + layout.groups * layout.kMetadataBytes;
  block.each(layout.codes_offset - metadata_end,
             [&](uint64_t i) { payload[metadata_end + i] = 0; });
  uint8_t* const codes = payload + layout.codes_offset;
  uint8_t* const table = payload + layout.end_of_codes();
  if (escapes != 0) {
    const auto* const metadata = reinterpret_cast<const Metadata<T>*>(payload + 64);
    block.ranked(
        layout.groups, [&](uint64_t g) { return kind_of<T>(metadata[g]) == GroupKind::kEscaped; },
        [&](uint64_t g, uint64_t rank) {
          *reinterpret_cast<Stored64*>(codes + g * layout.kSlotBytes) = rank;
          *reinterpret_cast<Stored64*>(table + rank * layout.kGroupBytes) = g;  // for the moment
        });
    block.sync();
    block.by_warps(
        escapes,
        [&](uint64_t rank) {
          return *reinterpret_cast<const Stored64*>(table + rank * layout.kGroupBytes);
        },
        [&](uint64_t rank, uint64_t g, unsigned lane) {
          const Word* const from = static_cast<const Word*>(job.source) + g * kGroupSize;
          Word* const to = reinterpret_cast<Word*>(table + rank * layout.kGroupBytes);
          const uint64_t left = job.elements - g * kGroupSize;
          for (unsigned e = lane; e < kGroupSize; e += 32) to[e] = e < left ? from[e] : Word{0};
        });
    block.sync();
  }
  block.once([&] {
    Header header;
    header.kind = static_cast<uint8_t>(PayloadKind::kGrouped);
    header.type = static_cast<uint8_t>(T::kType);
    header.bits = kBits;
    header.flags = lossy ? kFlagLossy : uint8_t{0};
    header.escapes = static_cast<uint32_t>(escapes);
    header.elements = job.elements;
    header.nonce = job.nonce;
    header.payload_bytes = layout.end_of_codes() + escapes * layout.kGroupBytes;
    header.code_bytes = layout.code_bytes();
    write_header(header, payload);
    job.verdict->escapes = header.escapes;
    job.verdict->payload_bytes = header.payload_bytes;
  });
  block.publish(job.verdict, cuda::Outcome::kDone);
}

// Whether a payload is what the job expects: every offset a decoder follows then lies within the
// bound that its encoder was given (device_payload_bound()); the bytes there are the caller's word.
// Compacted payloads, which a device never writes, are not read on one.
template <class T, unsigned kBits>
PLEAT_HD inline bool payload_fits(const Header& header, uint64_t elements) {
  const DeviceLayout<T, kBits> layout(elements);
  // No short cuts: a device evaluates all of it at once, one after the other would be slower.
  unsigned wrong = header.magic ^ kMagic;
  wrong |= header.version ^ unsigned { kFormatVersion };
  wrong |= header.kind ^ static_cast<unsigned>(PayloadKind::kGrouped);
  wrong |= header.type ^ T::kType;
  wrong |= header.bits ^ kBits;
  wrong |= header.flags & ~unsigned{kFlagLossy};
  wrong |= header.reserved;
  uint64_t wrong_sizes = header.reserved_tail;
  wrong_sizes |= header.elements ^ elements;
  wrong_sizes |= header.code_bytes ^ layout.code_bytes();
  wrong_sizes |= header.payload_bytes ^
                 (layout.end_of_codes() + uint64_t{header.escapes} * layout.kGroupBytes);
  return (wrong | (wrong_sizes != 0 ? 1u : 0u) |
          (header.escapes > layout.escape_limit() ? 1u : 0u)) == 0;
}

}  // namespace
}  // namespace pleat::compress
