// A GPU as a back end of the golden cases (tests/compress/golden.h).
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "compress/cuda/device_codec.h"
#include "compress/format.h"
#include "tests/compress/golden.h"
#include "tests/gpu/gpu.h"

namespace pleat::compress::golden {

// One task, there or back, waited for. `source` goes to the device, up to `room` bytes of the
// target come back: none unless the verdict is kDone.
inline std::vector<unsigned char> run_on_gpu(test::Gpu& gpu, cuda::DeviceTask task, bool encode,
                                             const std::vector<unsigned char>& source,
                                             std::size_t room) {
  const test::DeviceMemory from(source.size() + 64), to(room + 64), small(4096),
      scratch(task.framed ? cuda::device_scratch_bytes(task) : 64);
  small.fill(0, gpu.stream);
  scratch.fill(0, gpu.stream);
  from.write(source.data(), source.size());
  task.source = from.as();
  task.target = to.as();
  task.verdict = small.as<cuda::Verdict>();
  task.counters = small.as<cuda::Counters>(1024);
  task.scratch = scratch.as();
  const StreamHandle stream{reinterpret_cast<std::uintptr_t>(gpu.stream)};
  std::size_t queued = 0;
  test::check(encode ? cuda::encode_on_device(gpu.launcher, {&task, 1}, stream, &queued)
                     : cuda::decode_on_device(gpu.launcher, {&task, 1}, stream, &queued),
              gpu.launcher);
  test::check(test::driver.stream_synchronize(gpu.stream), "kernel");
  cuda::Verdict verdict;
  small.read(&verdict, sizeof verdict);
  if (verdict.outcome != cuda::Outcome::kDone) return {};
  std::vector<unsigned char> got(encode ? verdict.payload_bytes : room);
  to.read(got.data(), got.size());
  return got;
}

// Exits 77 where there is no GPU.
inline Backend gpu_backend() {
  const auto gpu = std::make_shared<test::Gpu>();
  const auto task = std::make_shared<cuda::DeviceTask>();  // of the last case
  return {[=](const Case& input) {
            *task = {};
            task->type = input.type;
            task->bits = input.spec.bits;
            task->transform = input.spec.transform;
            task->sides = input.spec.sides;
            task->elements = input.elements;
            task->nonce = kNonce;
            task->exponents = input.spec.exponents;
            task->zeros = input.spec.zeros;
            const Exponents& exponents = input.spec.exponents;
            const test::DeviceMemory table(64 + exponents.channels);
            if (exponents.channels != 0) table.write(exponents.table, exponents.channels);
            task->exponents.table = table.as<std::int8_t>();
            task->framed = device_payload(input).form == DeviceForm::kFramed;
            task->capacity = kHeaderBytes + input.source.size();
            return run_on_gpu(*gpu, *task, true, input.source, cuda::device_payload_bound(*task));
          },
          [=](const std::vector<unsigned char>& payload, std::size_t bytes) {
            if (payload.empty()) return std::vector<unsigned char>{};
            task->capacity = payload.size();
            return run_on_gpu(*gpu, *task, false, payload, bytes);
          }};
}

}  // namespace pleat::compress::golden
