// Ends a span, in the block of threads that finishes its last tile. The block numbers the escaped
// groups, keeps their bytes, and writes the header and the verdict. This file also checks a payload
// before it is decoded. Written against a Block (block_core.h).
#pragma once

#include "compress/device/block_core.h"
#include "compress/exponents/part_core.h"
#include "compress/grouped/encode_core.h"

namespace pleat::compress {
namespace {

// GroupedLayout (format.h) for device code; a test holds the two together.
template <class F>
struct DeviceLayout {
  static constexpr uint64_t kSlotBytes = F::kSlotBytes;
  static constexpr uint64_t kMetadataBytes = sizeof(Metadata<typename F::Coded>);  // of a group
  static constexpr uint64_t kGroupBytes = kGroupSize * sizeof(typename F::Source::Word);
  uint64_t elements;
  uint64_t groups;
  uint64_t codes_offset;
  Exponents exponents;

  PLEAT_HD explicit DeviceLayout(uint64_t number, const Exponents& of_groups = {})
      : elements(number),
        groups((elements + (kGroupSize - 1)) / kGroupSize),
        codes_offset(64 + round_up_64(groups * kMetadataBytes)),
        exponents(F::kBits == 0 ? Exponents{} : of_groups) {}
  PLEAT_HD explicit DeviceLayout(const cuda::Job& job)
      : DeviceLayout(job.elements, job.exponents()) {}
  PLEAT_HD uint64_t code_bytes() const { return groups * kSlotBytes; }
  PLEAT_HD uint64_t end_of_codes() const { return codes_offset + code_bytes(); }
  // Of the exponents, where the escape table begins.
  PLEAT_HD uint64_t end() const { return end_of_codes() + exponent_bytes(exponents, elements); }
  PLEAT_HD uint64_t escape_limit() const {
    if (has_wide_groups(F::kBits)) return 0;
    const uint64_t share = groups / (F::kBits == 0 ? 8 : 64);
    return share == 0 ? 1 : share;
  }
};

// True if the span is better kept raw than in a payload with `escapes` escaped groups.
template <class F>
PLEAT_HD inline bool too_many_escapes(uint64_t elements, uint64_t escapes) {
  const DeviceLayout<F> layout(elements);
  if (escapes > layout.escape_limit()) return true;
  return F::kBits == 0 && layout.end_of_codes() + escapes * layout.kGroupBytes >=
                              64 + elements * sizeof(typename F::Source::Word);
}

// The bytes of escaped groups where they lie in the source. in_place_core.h has them elsewhere.
//   number(group, slot)  of the group, for words() and elements()
template <class F>
struct GroupsInSource {
  using Word = typename F::Source::Word;
  const cuda::Job& job;

  PLEAT_HD uint64_t number(uint64_t group, const uint8_t*) const { return group; }
  PLEAT_HD const Word* words(uint64_t group) const {
    return static_cast<const Word*>(job.source) + group * kGroupSize;
  }
  PLEAT_HD uint64_t elements(uint64_t group) const { return job.elements - group * kGroupSize; }
};

// Whether groups of both signs keep zeros.
template <class F>
PLEAT_HD inline bool keeps_zeros(const cuda::Job& job) {
  return F::kBits >= 2 && !F::kTransformed && job.zeros != 0;
}

// The header's flags that follow from the form and the job, but for kFlagExponents.
template <class F>
PLEAT_HD inline unsigned flags_of(const cuda::Job& job) {
  return (F::kTransformed ? kFlagTransformed : 0u) | (F::kScaled ? kFlagScaled : 0u) |
         (keeps_zeros<F>(job) ? kFlagZeros : 0u);
}

PLEAT_HD inline void write_counts(const cuda::Counters& counted, cuda::Verdict* verdict) {
  verdict->escapes = counted.escapes;
  verdict->too_wide = counted.too_wide;
  verdict->leaving = counted.leaving;
  verdict->widest = float_of(counted.widest);
  verdict->kept = 0;
}

template <class F, class Block, class Groups>
PLEAT_HD inline void finish_span(Block& block, const cuda::Job& job, const cuda::Counters& counted,
                                 const Groups& escaped) {
  using Word = typename F::Source::Word;
  const uint64_t escapes = counted.escapes;
  const DeviceLayout<F> layout(job);
  uint8_t* const payload = static_cast<uint8_t*>(job.target);
  if (too_many_escapes<F>(job.elements, escapes)) {
    block.once([&] {
      Header none;
      none.magic = 0;
      write_header(none, payload);
      write_counts(counted, job.verdict);
      job.verdict->payload_bytes = 0;
    });
    block.publish(job.verdict, cuda::Outcome::kKeepRaw);
    return;
  }
  const uint64_t metadata_end = 64 + layout.groups * layout.kMetadataBytes;
  block.each(layout.codes_offset - metadata_end,
             [&](uint64_t i) { payload[metadata_end + i] = 0; });
  uint8_t* const codes = payload + layout.codes_offset;
  const uint64_t end = layout.end();
  uint8_t* const table = payload + end;
  if (layout.exponents.any()) {
    const uint64_t parts = all_parts(layout.exponents, job.elements), channels = job.channels;
    const uint64_t before = table_offset(layout.exponents, job.elements) - parts;
    uint8_t* const section = payload + layout.end_of_codes() + parts;
    block.each(end - layout.end_of_codes() - parts, [&](uint64_t i) {
      const bool is_entry = i >= before && i < before + channels;
      section[i] = is_entry ? static_cast<uint8_t>(job.table[i - before]) : uint8_t{0};
    });
  }
  if (escapes != 0) {
    const auto* const metadata = reinterpret_cast<const Metadata<typename F::Coded>*>(payload + 64);
    block.ranked(
        layout.groups,
        [&](uint64_t g) { return kind_of<typename F::Coded>(metadata[g]) == GroupKind::kEscaped; },
        [&](uint64_t g, uint64_t rank) {
          uint8_t* const slot = codes + g * layout.kSlotBytes;
          *reinterpret_cast<Stored64*>(table + rank * layout.kGroupBytes) =
              escaped.number(g, slot);  // until the next loop replaces it
          *reinterpret_cast<Stored64*>(slot) = rank;
        });
    block.sync();
    block.by_warps(
        escapes,
        [&](uint64_t rank) {
          return *reinterpret_cast<const Stored64*>(table + rank * layout.kGroupBytes);
        },
        [&](uint64_t rank, uint64_t number, unsigned lane) {
          const Word* const from = escaped.words(number);
          Word* const to = reinterpret_cast<Word*>(table + rank * layout.kGroupBytes);
          const uint64_t left = escaped.elements(number);
          for (unsigned e = lane; e < kGroupSize; e += 32) to[e] = e < left ? from[e] : Word{0};
        });
    block.sync();
  }
  block.once([&] {
    Header header;
    header.kind = static_cast<uint8_t>(PayloadKind::kGrouped);
    header.type = static_cast<uint8_t>(F::Source::kType);
    header.bits = F::kBits;
    header.flags = static_cast<uint8_t>((counted.lossy != 0 ? kFlagLossy : 0) | flags_of<F>(job));
    if (layout.exponents.any()) write_exponents(layout.exponents, &header);
    header.escapes = static_cast<uint32_t>(escapes);
    header.elements = job.elements;
    header.nonce = job.nonce;
    header.payload_bytes = end + escapes * layout.kGroupBytes;
    header.code_bytes = layout.code_bytes();
    write_header(header, payload);
    write_counts(counted, job.verdict);
    job.verdict->payload_bytes = header.payload_bytes;
  });
  block.publish(job.verdict, cuda::Outcome::kDone);
}

// True if the payload is what the job expects: every offset that a decoder follows then lies within
// its capacity. A device neither writes nor reads compacted payloads.
template <class F>
PLEAT_HD inline bool payload_fits(const Header& header, const cuda::Job& job,
                                  const DeviceLayout<F>& layout) {
  Header expected;
  expected.flags = static_cast<uint8_t>(flags_of<F>(job));
  if (layout.exponents.any()) write_exponents(layout.exponents, &expected);
  // No short-circuiting: a device evaluates all checks at once, which is faster than one after the
  // other.
  unsigned wrong = header.magic ^ kMagic;
  wrong |= header.version ^ unsigned { kFormatVersion };
  wrong |= header.kind ^ static_cast<unsigned>(PayloadKind::kGrouped);
  wrong |= header.type ^ F::Source::kType;
  wrong |= header.bits ^ F::kBits;
  wrong |= (header.flags & ~unsigned{kFlagLossy}) ^ expected.flags;
  wrong |= header.reserved;
  uint64_t wrong_sizes = header.third_value ^ expected.third_value;
  if (layout.exponents.any()) wrong_sizes |= header.value ^ expected.value;
  wrong_sizes |= header.elements ^ job.elements;
  wrong_sizes |= header.code_bytes ^ layout.code_bytes();
  wrong_sizes |=
      header.payload_bytes ^ (layout.end() + uint64_t{header.escapes} * layout.kGroupBytes);
  return (wrong | (wrong_sizes != 0 ? 1u : 0u) |
          (header.escapes > layout.escape_limit() ? 1u : 0u) |
          (header.payload_bytes > job.capacity ? 1u : 0u)) == 0;
}

}  // namespace
}  // namespace pleat::compress
