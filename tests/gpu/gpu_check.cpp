// On a machine with an NVIDIA GPU: do the kernels give the bytes of the CPU path, and how fast are
// they beside a copy? Prints JSON; exits 0 if all bytes agree, 1 if not, 77 where there is no GPU.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "compress/codec.h"
#include "compress/cuda/device_codec.h"
#include "compress/format.h"
#include "compress/framed/framed.h"
#include "compress/kernels.h"
#include "tests/compress/fixed_payload.h"
#include "tests/gpu/gpu.h"
#include "tests/gpu/gpu_asides.h"
#include "tests/gpu/gpu_content.h"
#include "tests/gpu/gpu_noise.h"
#include "tests/gpu/gpu_speed.h"

namespace {

using namespace pleat::compress;
using namespace pleat::compress::test;
using cuda::DeviceTask;

struct Case {
  DeviceTask task;
  std::vector<unsigned char> source;
  std::size_t shift;  // of source and target, in bytes
  std::size_t payload_bytes;
  std::size_t payload_at, source_at, restored_at;
};

// Many spans per call, so that batches are what is tested. Returns how many differ.
unsigned check_bytes(KernelLauncher& launcher, void* stream, unsigned* checked) {
  std::vector<Case> cases;
  std::uint64_t seed = 1;
  const auto add = [&](ElementType type, unsigned bits, std::size_t elements, unsigned width,
                       std::vector<unsigned char> source, Transform transform = Transform::kNone) {
    Case one{};
    one.task.transform = transform;
    one.task.type = type;
    one.task.bits = static_cast<std::uint8_t>(bits);
    one.task.elements = elements;
    one.task.nonce = 0x9E37'79B9'7F4A'7C15 * seed;
    one.task.width = width;
    one.task.minimum = -77;
    one.source = std::move(source);
    one.shift = cases.size() % 3 == 2 ? element_size(type) : 0;
    if (cuda::device_can_encode(one.task)) cases.push_back(std::move(one));
    ++seed;
  };
  for (const ElementType type :
       {ElementType::kFloat32, ElementType::kBFloat16, ElementType::kFloat16})
    for (const unsigned bits : {1u, 2u, 3u, 4u, 6u, 8u})
      for (const Transform transform :
           {Transform::kNone, Transform::kHadamard, Transform::kHadamardScaled})
        for (const std::size_t elements : {1000u, 8192u, 8193u, 70001u, 3000000u})
          add(type, bits, elements, 0, floats(type, elements, seed, elements != 70001), transform);
  for (const ElementType type :
       {ElementType::kFloat32, ElementType::kBFloat16, ElementType::kFloat16})
    for (const std::size_t elements : {1000u, 70001u, 3000000u})
      add(type, 0, elements, 0, masks(type, elements, seed));
  std::mt19937_64 random(7);
  for (const std::size_t elements : {1000u, 70001u, 3000000u}) {
    std::vector<unsigned char> flags(elements);
    for (unsigned char& flag : flags) flag = random() & 1;
    add(ElementType::kBool, 0, elements, 0, flags);
    for (const ElementType type : {ElementType::kInt64, ElementType::kInt32})
      for (const unsigned width : {1u, 2u, 4u, 8u, 16u, 32u}) {
        std::vector<unsigned char> numbers(elements * element_size(type));
        for (std::size_t e = 0; e < elements; ++e) {
          const std::uint64_t most = (1ULL << width) - 1;
          const std::int64_t number =
              -77 + static_cast<std::int64_t>(e % 1024 == 0   ? 0
                                              : e % 1024 == 1 ? most
                                                              : random() & most);
          std::memcpy(&numbers[e * element_size(type)], &number, element_size(type));
        }
        add(type, 0, elements, width, numbers);
      }
  }
  std::size_t room = 0;
  for (Case& one : cases) {
    const auto place = [&](std::size_t bytes) {
      const std::size_t at = room;
      room += (bytes + 64 + 255) / 256 * 256;
      return at;
    };
    one.payload_at = place(cuda::device_payload_bound(one.task));
    one.source_at = place(one.source.size()) + one.shift;
    one.restored_at = place(one.source.size()) + one.shift;
  }
  const DeviceMemory memory(room);
  const DeviceMemory verdicts(2 * cases.size() * sizeof(cuda::Verdict));
  const DeviceMemory counters(cases.size() * sizeof(cuda::Counters));
  memory.fill(0xA5, stream);
  verdicts.fill(0, stream);
  counters.fill(0, stream);
  check(driver.stream_synchronize(stream), "synchronize");
  std::vector<DeviceTask> there, back;
  for (std::size_t c = 0; c < cases.size(); ++c) {
    Case& one = cases[c];
    memory.write(one.source.data(), one.source.size(), one.source_at);
    one.task.source = memory.as(one.source_at);
    one.task.target = memory.as(one.payload_at);
    one.task.verdict = verdicts.as<cuda::Verdict>(c * sizeof(cuda::Verdict));
    one.task.counters = counters.as<cuda::Counters>(c * sizeof(cuda::Counters));
    there.push_back(one.task);
    DeviceTask task = one.task;
    task.source = one.task.target;
    task.capacity = cuda::device_payload_bound(one.task);
    task.target = memory.as(one.restored_at);
    task.verdict = verdicts.as<cuda::Verdict>((cases.size() + c) * sizeof(cuda::Verdict));
    back.push_back(task);
  }
  const StreamHandle handle{reinterpret_cast<std::uintptr_t>(stream)};
  std::size_t queued = 0;
  check(cuda::encode_on_device(launcher, there, handle, &queued), launcher);
  check(cuda::decode_on_device(launcher, back, handle, &queued), launcher);
  check(driver.stream_synchronize(stream), "kernels");
  std::vector<cuda::Verdict> outcomes(2 * cases.size());
  verdicts.read(outcomes.data(), outcomes.size() * sizeof(cuda::Verdict));
  std::vector<cuda::Counters> left(cases.size());
  counters.read(left.data(), left.size() * sizeof(cuda::Counters));
  unsigned wrong = 0;
  for (std::size_t c = 0; c < cases.size(); ++c) {
    const Case& one = cases[c];
    std::vector<unsigned char> expected, restored(one.source.size());
    if (is_floating(one.task.type)) {
      expected = test::fixed_payload(one.task.type, one.task.bits, one.task.transform,
                                     one.task.elements, one.task.nonce, one.source.data());
    } else {
      expected.resize(payload_bound({}, one.task.type, one.task.elements));
      const EncodeResult result =
          encode({one.source.data(), one.task.elements, one.task.type}, {}, one.task.nonce,
                 expected.data(), expected.size(), serial_executor(), nullptr);
      expected.resize(result.payload_bytes);
    }
    std::vector<unsigned char> got(expected.size());
    memory.read(got.data(), got.size(), one.payload_at);
    memory.read(restored.data(), restored.size(), one.restored_at);
    std::vector<unsigned char> decoded(one.source.size());
    const bool decodes = decode(expected.data(), expected.size(), decoded.data(), decoded.size(),
                                serial_executor()) == Status::kOk;
    const cuda::Counters zero{};
    const bool same = outcomes[c].outcome == cuda::Outcome::kDone &&
                      outcomes[c].payload_bytes == expected.size() && got == expected;
    const bool back_same = outcomes[cases.size() + c].outcome == cuda::Outcome::kDone && decodes &&
                           restored == decoded;
    const bool clean = std::memcmp(&left[c], &zero, sizeof zero) == 0;
    ++*checked;
    if (same && back_same && clean) continue;
    ++wrong;
    std::fprintf(stderr, "gpu_check: %s, %u bits, transform %s, width %u, %zu elements:%s%s%s\n",
                 type_name(one.task.type), one.task.bits, transform_name(one.task.transform),
                 one.task.width, one.task.elements, same ? "" : " payload differs",
                 back_same ? "" : " restored bytes differ", clean ? "" : " counters not zero");
  }
  return wrong;
}

// Over its own source, twice with the same scratch memory; blocks wait for each other there.
unsigned check_in_place(KernelLauncher& launcher, void* stream, unsigned* checked) {
  const StreamHandle handle{reinterpret_cast<std::uintptr_t>(stream)};
  constexpr std::size_t kGuard = 256;
  unsigned wrong = 0, refused = 0, spans = 0;
  for (const ElementType type :
       {ElementType::kFloat32, ElementType::kBFloat16, ElementType::kFloat16})
    for (const unsigned bits : {1u, 2u, 3u, 4u, 6u, 8u})
      for (const std::size_t elements : {1000u, 8193u, 70001u, 3000000u, 40000000u}) {
        if (elements > 3000000 && bits != 4) continue;
        DeviceTask task;
        task.type = type;
        task.bits = static_cast<std::uint8_t>(bits);
        task.elements = elements;
        task.nonce = 12345;
        std::vector<unsigned char> source = floats(type, elements, bits, elements != 8193);
        set_float(type, source.data(), elements - 1, INFINITY);  // in the short last group
        if (elements == 70001)                                   // one in two groups escapes
          for (std::size_t e = 0; e < elements; e += 512) set_float(type, source.data(), e, NAN);
        const std::vector<unsigned char> expected =
            test::fixed_payload(type, bits, Transform::kNone, elements, task.nonce, source.data());
        const bool fits = !expected.empty() && expected.size() <= source.size();
        const std::size_t scratch_bytes = cuda::device_scratch_bytes(task);
        const DeviceMemory block(source.size() + kGuard), scratch(scratch_bytes + kGuard);
        const DeviceMemory small(4096);
        task.source = task.target = block.as();
        task.verdict = small.as<cuda::Verdict>();
        task.counters = small.as<cuda::Counters>(1024);
        task.scratch = scratch.as();
        if (!cuda::device_can_encode_in_place(task)) continue;
        small.fill(0, stream);
        block.fill(0xA5, stream);
        scratch.fill(0xA5, stream);
        for (int run = 0; run < 2; ++run) {
          check(driver.stream_synchronize(stream), "synchronize");
          block.write(source.data(), source.size());
          check(cuda::encode_in_place_on_device(launcher, task, handle), launcher);
          check(driver.stream_synchronize(stream), "kernels");
          cuda::Verdict verdict;
          cuda::Counters counters, zero{};
          small.read(&verdict, sizeof verdict);
          small.read(&counters, sizeof counters, 1024);
          const std::vector<unsigned char>& wanted = fits ? expected : source;
          std::vector<unsigned char> got(wanted.size()), guards(2 * kGuard);
          block.read(got.data(), got.size());
          block.read(guards.data(), kGuard, source.size());
          scratch.read(guards.data() + kGuard, kGuard, scratch_bytes);
          const bool told =
              verdict.outcome == (fits ? cuda::Outcome::kDone : cuda::Outcome::kKeepRaw) &&
              verdict.payload_bytes == (fits ? expected.size() : 0);
          const bool clean =
              std::memcmp(&counters, &zero, sizeof zero) == 0 &&
              std::all_of(guards.begin(), guards.end(), [](unsigned char b) { return b == 0xA5; });
          ++*checked;
          ++spans;
          refused += !fits;
          if (got == wanted && told && clean) continue;
          ++wrong;
          std::fprintf(stderr, "gpu_check: in place, %s, %u bits, %zu elements, run %d:%s%s%s\n",
                       type_name(type), bits, elements, run, got == wanted ? "" : " bytes differ",
                       told ? "" : " wrong verdict",
                       clean ? "" : " counters not zero, or bytes beyond the end written");
        }
      }
  if (spans < 60 || refused < 10) {
    std::fprintf(stderr, "gpu_check: in place: only %u spans, %u refused\n", spans, refused);
    ++wrong;
  }
  return wrong;
}

// Framed floats, whose blocks look back at each other: many spans a launch, large ones, predictions
// that hold to the byte or miss by one, damaged payloads; three times with the same scratch memory.
unsigned check_frames(KernelLauncher& launcher, void* stream, unsigned* checked) {
  const StreamHandle handle{reinterpret_cast<std::uintptr_t>(stream)};
  constexpr std::size_t kGuard = 256;
  enum What { kHolds, kMisses, kDamaged, kWhats };
  struct Span {
    std::vector<unsigned char> source, expected;
    DeviceTask task;
    What what;
    std::size_t source_at, payload_at, restored_at, scratch_at;
  };
  unsigned wrong = 0, held = 0, missed = 0;
  for (const ElementType type :
       {ElementType::kFloat32, ElementType::kBFloat16, ElementType::kFloat16}) {
    std::vector<Span> spans;
    std::size_t room = 0, scratch_bytes = 0;
    for (const std::size_t elements :
         {300u, 1000u, 8192u, 8193u, 70001u, 3000000u, 3000001u, 40000000u}) {
      Span span{};
      span.source = floats(type, elements, elements, elements % 2 == 0);
      span.what = static_cast<What>(spans.size() % kWhats);
      DeviceTask& task = span.task;
      task.type = type;
      task.elements = elements;
      task.framed = true;
      task.nonce = elements;
      const Request request({span.source.data(), elements, type}, {}, task.nonce);
      span.expected.resize(request.raw_bytes());
      EncodeResult result{Status::kOk, 0};
      if (!encode_framed(request, serial_executor(), span.expected.data(), span.expected.size(),
                         &result)) {
        std::fprintf(stderr, "gpu_check: %zu %s are not framed\n", elements, type_name(type));
        ++wrong;
        continue;
      }
      span.expected.resize(result.payload_bytes);
      task.capacity = result.payload_bytes - (span.what == kMisses ? 1 : 0);
      if (!cuda::device_can_encode(task)) continue;
      const auto place = [&](std::size_t bytes, std::size_t shift) {
        const std::size_t at = room;
        room += (bytes + shift + kGuard + 255) / 256 * 256;
        return at + shift;
      };
      const std::size_t shift = spans.size() % 3 == 2 ? element_size(type) : 0;
      span.source_at = place(span.source.size(), shift);
      span.payload_at = place(result.payload_bytes, 0);
      span.restored_at = place(span.source.size(), shift);
      span.scratch_at = scratch_bytes;
      scratch_bytes += (cuda::device_scratch_bytes(task) + 255) / 256 * 256;
      spans.push_back(std::move(span));
    }
    const DeviceMemory memory(room), scratch(scratch_bytes), small(8192);
    scratch.fill(0, stream);
    for (int run = 0; run < 3; ++run) {
      memory.fill(0xA5, stream);
      small.fill(0, stream);
      check(driver.stream_synchronize(stream), "synchronize");
      std::vector<DeviceTask> there, back;
      for (std::size_t s = 0; s < spans.size(); ++s) {
        Span& span = spans[s];
        memory.write(span.source.data(), span.source.size(), span.source_at);
        span.task.source = memory.as(span.source_at);
        span.task.target = memory.as(span.payload_at);
        span.task.scratch = scratch.as(span.scratch_at);
        span.task.verdict = small.as<cuda::Verdict>(s * sizeof(cuda::Verdict));
        there.push_back(span.task);
        DeviceTask task = span.task;
        task.source = task.target;
        task.target = memory.as(span.restored_at);
        task.verdict = small.as<cuda::Verdict>(4096 + s * sizeof(cuda::Verdict));
        task.capacity = span.expected.size();
        back.push_back(task);
      }
      std::size_t queued = 0;
      check(cuda::encode_on_device(launcher, there, handle, &queued), launcher);
      check(driver.stream_synchronize(stream), "kernels");
      for (std::size_t s = 0; s < spans.size(); ++s) {
        const Span& span = spans[s];
        cuda::Verdict verdict;
        small.read(&verdict, sizeof verdict, s * sizeof verdict);
        const bool fits = span.what != kMisses;
        std::vector<unsigned char> got(span.task.capacity), guard(kGuard - 1);
        memory.read(got.data(), got.size(), span.payload_at);
        memory.read(guard.data(), guard.size(), span.payload_at + span.task.capacity);
        const bool told =
            verdict.outcome == (fits ? cuda::Outcome::kDone : cuda::Outcome::kKeepRaw) &&
            verdict.payload_bytes == span.expected.size();
        const bool same = !fits || got == span.expected;
        const bool clean =
            std::all_of(guard.begin(), guard.end(), [](unsigned char b) { return b == 0xA5; });
        ++*checked;
        ++(fits ? held : missed);
        if (!told || !same || !clean) {
          ++wrong;
          std::fprintf(stderr, "gpu_check: framed, %s, %zu elements, run %d:%s%s%s\n",
                       type_name(type), span.task.elements, run, told ? "" : " wrong verdict",
                       same ? "" : " bytes differ", clean ? "" : " bytes beyond the capacity");
        }
        std::vector<unsigned char> payload = span.expected;  // what was missed above, too
        if (span.what == kDamaged) ++payload[kHeaderBytes + element_size(type)];  // a width
        memory.write(payload.data(), payload.size(), span.payload_at);
      }
      check(cuda::decode_on_device(launcher, back, handle, &queued), launcher);
      check(driver.stream_synchronize(stream), "kernels");
      for (std::size_t s = 0; s < spans.size(); ++s) {
        const Span& span = spans[s];
        cuda::Verdict verdict;
        small.read(&verdict, sizeof verdict, 4096 + s * sizeof verdict);
        std::vector<unsigned char> restored(span.source.size());
        memory.read(restored.data(), restored.size(), span.restored_at);
        if (span.what == kDamaged
                ? verdict.outcome == cuda::Outcome::kCorrupt
                : verdict.outcome == cuda::Outcome::kDone && restored == span.source)
          continue;
        ++wrong;
        std::fprintf(stderr, "gpu_check: framed, %s, %zu elements, run %d: restored wrongly\n",
                     type_name(type), span.task.elements, run);
      }
    }
    std::vector<unsigned char> left(scratch_bytes);
    scratch.read(left.data(), left.size());
    if (!std::all_of(left.begin(), left.end(), [](unsigned char b) { return b == 0; })) {
      std::fprintf(stderr, "gpu_check: framed, %s: scratch memory is not zero\n", type_name(type));
      ++wrong;
    }
  }
  if (held < 40 || missed < 20) {
    std::fprintf(stderr, "gpu_check: framed: only %u held, %u missed\n", held, missed);
    ++wrong;
  }
  return wrong;
}

}  // namespace

int main() {
  Gpu gpu;
  int version = 0, multiprocessors = 0;
  char name[128] = "";
  check(driver.device_name(name, sizeof name, gpu.device), "name");
  check(driver.driver_version(&version), "version");
  check(driver.attribute(&multiprocessors, 16, gpu.device), "multiprocessors");
  unsigned checked = 0;
  const unsigned wrong = check_bytes(gpu.launcher, gpu.stream, &checked) +
                         check_in_place(gpu.launcher, gpu.stream, &checked) +
                         check_frames(gpu.launcher, gpu.stream, &checked) +
                         check_asides(gpu.launcher, gpu.stream, &checked) +
                         check_noise(gpu.launcher, gpu.stream, &checked) +
                         check_sketches(gpu.launcher, gpu.stream, &checked);
  std::printf(
      "{\"gpu\": \"%s\", \"driver\": %d, \"multiprocessors\": %d,\n \"payloads_checked\": %u, "
      "\"payloads_wrong\": %u,\n",
      name, version, multiprocessors, checked, wrong);
  std::fprintf(stderr, "noise: %.0f ns a MiB of float32\n", time_noise(gpu.launcher, gpu.stream));
  std::fprintf(stderr, "sketch: %.0f ns a MiB of float32\n", time_sketch(gpu.launcher, gpu.stream));
  time_kernels(gpu.launcher, gpu.stream);
  time_frames(gpu.launcher, gpu.stream);
  return wrong == 0 ? 0 : 1;
}
