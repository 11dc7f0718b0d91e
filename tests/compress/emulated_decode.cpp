#include <algorithm>
#include <cstdint>
#include <cstring>

#include "tests/compress/emulated_device.h"
#include "tests/compress/emulated_kernels.h"

namespace pleat::compress::test {
namespace {

template <class F>
void decode(const cuda::Job& job) {
  using Word = typename F::Source::Word;
  using Coded = typename F::Coded;
  const DeviceLayout<F> layout(job);
  const auto* const payload = static_cast<const std::uint8_t*>(job.source);
  Header header;
  memcpy(&header, payload, sizeof header);
  if (!payload_fits<F>(header, job, layout)) {
    job.verdict->outcome = cuda::Outcome::kCorrupt;
    return;
  }
  const bool parted = layout.exponents.any();
  const auto* const parts = reinterpret_cast<const std::int8_t*>(payload) + layout.end_of_codes();
  Rows rows{};
  if (parted)
    rows = emulated_rows(layout.exponents, parts + table_offset(layout.exponents, job.elements),
                         parts);
  const auto decode_group_of_span = [&](std::uint64_t g, std::uint64_t elements) {
    EmulatedTile<Coded> tile;
    Metadata<Coded> metadata;
    memcpy(&metadata, payload + 64 + g * sizeof metadata, sizeof metadata);
    PartsOfGroup here = parted ? emulated_parts(&rows, g, job.elements) : no_parts();
    here.elements = std::min(here.elements, static_cast<unsigned>(elements));
    return decode_form<F>(tile, metadata, payload + layout.codes_offset + g * layout.kSlotBytes,
                          EscapeTable{payload + layout.end(), header.escapes}, g, header.nonce,
                          static_cast<Word*>(job.target) + g * kGroupSize,
                          static_cast<unsigned>(std::min<std::uint64_t>(elements, kGroupSize)),
                          reinterpret_cast<std::uintptr_t>(job.target) % 16 == 0, here,
                          keeps_zeros<F>(job));
  };
  bool intact = true;
  for (std::uint64_t g = layout.groups; g-- > 0;)
    intact &= decode_group_of_span(g, job.elements - g * kGroupSize);
  // Lanes beyond the last group.
  if (parted) intact &= decode_group_of_span(layout.groups - 1, 0);
  job.verdict->outcome = intact ? cuda::Outcome::kDone : cuda::Outcome::kCorrupt;
}

}  // namespace

void emulate_decode(const Kernel& kernel, const cuda::Job& job) {
  with_form(kernel.type, kernel.bits, kernel.transform, [&]<class F>() { decode<F>(job); });
}

void emulate_unpack(const cuda::Job& job, unsigned type) {
  Header header;
  memcpy(&header, job.source, sizeof header);
  bool intact = type == 3   ? booleans_fit(header, job.elements)
                : type == 4 ? integers_fit<std::int64_t>(header, job.elements, job.width)
                            : integers_fit<std::int32_t>(header, job.elements, job.width);
  if (intact && type == 3)
    emulate_runs(job.elements, kBooleanRun, [&](auto run) {
      unpack_boolean_run(static_cast<const std::uint8_t*>(job.source) + 64, job.elements, run,
                         static_cast<std::uint8_t*>(job.target));
      return true;
    });
  else if (intact)
    intact = emulate_runs(job.elements, kRestoredIntegers, [&](auto run) {
      return type == 4
                 ? decode_integer_run<std::int64_t>(job, run, integer_codes<std::int64_t>(job, run))
                 : decode_integer_run<std::int32_t>(job, run,
                                                    integer_codes<std::int32_t>(job, run));
    });
  job.verdict->outcome = intact ? cuda::Outcome::kDone : cuda::Outcome::kCorrupt;
}

void emulate_decode_sides(ElementType type, const cuda::Job& job) {
  Header header;
  memcpy(&header, job.source, sizeof header);
  const SideWords words = SideWords::of(header);
  const bool intact = with_type(type, [&]<class T>() {
    return sides_fit<T>(header, job.elements, job.width, job.capacity) &&
           emulate_runs(job.elements, kRestoredSides<T>, [&](auto run) {
             return unpack_side_run<T>(words, job.width == 2, side_codes<T>(job, run), job.elements,
                                       run, static_cast<typename T::Word*>(job.target));
           });
  });
  job.verdict->outcome = intact ? cuda::Outcome::kDone : cuda::Outcome::kCorrupt;
}

void emulate_move_to_sides(ElementType type, const cuda::Job& job) {
  Header header;
  memcpy(&header, job.source, sizeof header);
  const bool intact = with_type(type, [&]<class T>() {
    const SideMoves moves = side_moves<T>(SideWords::of(header), job.width == 2);
    return sides_fit_beside<T>(header, job.elements, job.width, job.capacity) &&
           emulate_runs(job.elements, kRestoredSides<T>, [&](auto run) {
             return move_side_run<T>(moves, side_codes<T>(job, run), job.elements, run,
                                     static_cast<typename T::Word*>(job.target));
           });
  });
  job.verdict->outcome = intact ? cuda::Outcome::kDone : cuda::Outcome::kCorrupt;
}

}  // namespace pleat::compress::test
