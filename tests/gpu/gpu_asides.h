// Compares the sections next to codes, and the counts of an encode, on a GPU with those of the
// host.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <random>
#include <vector>

#include "compress/block/group_steps.h"
#include "compress/codec.h"
#include "compress/cuda/device_asides.h"
#include "compress/lines/exact_lines.h"
#include "compress/sides/sides.h"
#include "tests/compress/fixed_payload.h"
#include "tests/gpu/gpu.h"
#include "tests/gpu/gpu_content.h"

namespace pleat::compress::test {

struct AsideCase {
  ElementType type;
  Look look;
  std::size_t rows;
  std::uint32_t length;

  [[nodiscard]] std::size_t elements() const { return rows * length; }
  [[nodiscard]] Lines lines() const { return {look, length}; }
};

// Lines of very different deviation, some of them zero.
inline std::vector<unsigned char> lined(const AsideCase& one, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> scales(one.look == Look::kColumns ? one.length : one.rows);
  for (float& scale : scales)
    scale = random() % 9 == 0 ? 0 : std::pow(10.0f, float(random() % 6) - 4);
  std::vector<unsigned char> source(one.elements() * element_size(one.type));
  for (std::size_t e = 0; e < one.elements(); ++e) {
    const std::size_t line = one.look == Look::kColumns ? e % one.length : e / one.length;
    set_float(one.type, source.data(), e, scales[line] * (normal(random) - 2));
  }
  return source;
}

// All that a task may ask for, there and back. Returns false, and says so, if something differs.
inline bool check_asides_of(KernelLauncher& launcher, void* stream, const AsideCase& one,
                            bool all_room, std::uint64_t seed) {
  constexpr unsigned kBits = 4;
  constexpr std::uint64_t kNonce = 77;
  const std::vector<unsigned char> source = lined(one, seed);
  const std::size_t elements = one.elements(), size = element_size(one.type);
  const Sides sides{Sides::Kind::kClosed, false, -1, INFINITY};

  // The host's answers.
  const std::vector<unsigned char> payload =
      fixed_payload(one.type, kBits, Transform::kNone, elements, kNonce, source.data());
  const std::vector<float> steps = group_steps(payload.data());
  std::vector<unsigned char> expected(source.size());
  bool good = decode(payload.data(), payload.size(), expected.data(), expected.size(),
                     serial_executor()) == Status::kOk;
  const CodecSpec of_sides{.sides = sides};
  std::vector<unsigned char> beside(payload_bound(of_sides, one.type, elements));
  good &= encode({source.data(), elements, one.type}, of_sides, kNonce, beside.data(),
                 beside.size(), serial_executor(), nullptr)
              .status == Status::kOk;
  const auto pattern_at = [&](std::size_t e) {
    std::uint32_t pattern = 0;
    std::memcpy(&pattern, &source[e * size], size);
    return pattern;
  };
  const std::uint32_t minus_one = one.type == ElementType::kFloat32    ? 0xBF80'0000u
                                  : one.type == ElementType::kBFloat16 ? 0xBF80u
                                                                       : 0xBC00u;
  std::uint32_t near = 0;
  for (std::size_t e = 0; e < elements; ++e) {
    if (pattern_at(e) >= minus_one) continue;
    ++near;
    std::memcpy(&expected[e * size], &source[e * size], size);
  }
  good &= restore_sides(beside.data(), beside.size(), expected.data(), expected.size(),
                        serial_executor()) == Status::kOk;
  std::vector<block::LineRun> runs =
      block::flat_lines(source.data(), elements, one.type, one.lines(), steps).exact;
  std::uint32_t flat = 0;
  for (const block::LineRun& run : runs) flat += run.zero != 0 ? 0 : run.count;
  const std::uint32_t most = all_room ? flat : flat / 2;
  std::uint32_t left = most;
  for (const block::LineRun& run : runs)
    for (std::size_t line = run.first; line < run.first + std::size_t{run.count}; ++line) {
      if (run.zero == 0 && left == 0) continue;
      left -= run.zero == 0;
      const std::size_t count = one.look == Look::kColumns ? one.rows : one.length;
      for (std::size_t at = 0; at < count; ++at) {
        const std::size_t e =
            size * (one.look == Look::kColumns ? at * one.length + line : line * one.length + at);
        std::memcpy(&expected[e], &source[e], size);
        if (run.zero != 0) std::memset(&expected[e], 0, size);
      }
    }

  // The device's.
  cuda::DeviceTask task;
  task.type = one.type;
  task.bits = kBits;
  task.elements = elements;
  task.nonce = kNonce;
  task.widest_step = 0.01f;
  task.beside = sides;
  cuda::DeviceTask side_task = task;
  side_task.sides = sides;
  side_task.beside = {};
  side_task.widest_step = INFINITY;
  const DeviceMemory from(source.size()), to(source.size()), codes(payload.size()),
      side_codes(beside.size()),
      section(cuda::line_section_bytes(one.lines(), elements, one.type, most)),
      near_section(cuda::near_zero_section_bytes(one.type, near)), small(8192),
      scratch(64 + cuda::line_scratch_bytes(one.lines(), elements, one.type));
  small.fill(0, stream);
  section.fill(0xA5, stream);
  near_section.fill(0xA5, stream);
  scratch.fill(0xA5, stream);
  check(driver.stream_synchronize(stream), "synchronize");
  from.write(source.data(), source.size());
  std::size_t calls = 0, queued = 0;
  const auto tell = [&](auto& any) {
    any.verdict = small.as<cuda::Verdict>(calls * sizeof(cuda::Verdict));
    any.counters = small.as<cuda::Counters>(1024);  // one serves all, as each leaves it zero
    ++calls;
  };
  const StreamHandle handle{reinterpret_cast<std::uintptr_t>(stream)};
  const auto run = [&](auto queue, auto any) {
    tell(any);
    check(queue(launcher, {&any, 1}, handle, &queued), launcher);
  };
  task.source = side_task.source = from.as();
  task.target = codes.as();
  side_task.target = side_codes.as();
  run(cuda::encode_on_device, task);
  cuda::LineTask lines;
  lines.source = from.as();
  lines.codes = codes.as();
  lines.target = to.as();
  lines.section = section.as();
  lines.elements = elements;
  lines.type = one.type;
  lines.bits = kBits;
  lines.lines = one.lines();
  lines.most = most;
  lines.scratch = scratch.as();
  run(cuda::keep_lines_on_device, lines);
  cuda::NearZeroTask zero;
  zero.source = from.as();
  zero.target = to.as();
  zero.section = near_section.as();
  zero.elements = elements;
  zero.type = one.type;
  zero.most = near;
  run(cuda::keep_near_zero_on_device, zero);
  run(cuda::encode_on_device, side_task);
  cuda::DeviceTask back = task, side_back = side_task;
  back.source = codes.as();
  back.capacity = payload.size();
  side_back.source = side_codes.as();
  side_back.capacity = beside.size();
  back.target = side_back.target = to.as();
  run(cuda::decode_on_device, back);
  run(cuda::restore_near_zero_on_device, zero);
  run(cuda::move_to_sides_on_device, side_back);
  run(cuda::restore_lines_on_device, lines);
  check(driver.stream_synchronize(stream), "kernels");

  std::vector<cuda::Verdict> verdicts(calls);
  small.read(verdicts.data(), calls * sizeof(cuda::Verdict));
  for (const cuda::Verdict& verdict : verdicts) good &= verdict.outcome == cuda::Outcome::kDone;
  good &= verdicts[0].too_wide ==
          std::count_if(steps.begin(), steps.end(), [](float step) { return step > 0.01f; });
  good &= verdicts[0].widest == *std::max_element(steps.begin(), steps.end());
  good &= (verdicts[0].leaving != 0) == may_leave_side(payload.data(), payload.size(), sides);
  good &= verdicts[1].kept == flat && verdicts[2].kept == near;
  std::vector<unsigned char> restored(source.size());
  to.read(restored.data(), restored.size());
  const bool same = restored == expected;
  if (!good || !same)
    std::fprintf(stderr, "gpu_check: beside %s, %zu x %u, look %d, room for %u of %u:%s%s\n",
                 type_name(one.type), one.rows, one.length, static_cast<int>(one.look), most, flat,
                 good ? "" : " wrong counts or verdicts", same ? "" : " bytes differ");
  return good && same;
}

// Returns how many spans are wrong.
inline unsigned check_asides(KernelLauncher& launcher, void* stream, unsigned* checked) {
  unsigned wrong = 0;
  std::uint64_t seed = 1;
  for (const ElementType type :
       {ElementType::kFloat32, ElementType::kBFloat16, ElementType::kFloat16})
    for (const AsideCase& one : {AsideCase{type, Look::kRows, 40, 96},
                                 {type, Look::kRows, 999, 5001},
                                 {type, Look::kRows, 30'000, 97},
                                 {type, Look::kParts, 900, 100},
                                 {type, Look::kColumns, 50, 96},
                                 {type, Look::kColumns, 20'000, 64},
                                 {type, Look::kColumns, 1000, 2049}})
      for (const bool all_room : {true, false}) {
        // With many rows the host finds zeros by samples: there is one.
        wrong += check_asides_of(launcher, stream, one, all_room, ++seed) ? 0 : 1;
        ++*checked;
      }
  return wrong;
}

}  // namespace pleat::compress::test
