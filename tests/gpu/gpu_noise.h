// Compares the kernels of sensitivity measurements on a GPU with the host's, and times them: noise
// (compress/cuda/mix_core.h) and sketches (compress/sketch/sketch_core.h).
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <vector>

#include "compress/block/disturb.h"
#include "compress/codec.h"
#include "compress/cuda/device_asides.h"
#include "compress/cuda/device_sketch.h"
#include "compress/grouped/group_math.h"
#include "compress/sides/sides.h"
#include "compress/sketch/sketch.h"
#include "tests/gpu/gpu.h"
#include "tests/gpu/gpu_content.h"
#include "tests/gpu/gpu_speed.h"

namespace pleat::compress::test {

// The launches of a span, which lies on the GPU.
class NoiseOnGpu {
 public:
  NoiseOnGpu(const block::BlockSpec& spec, const block::Disturbance& how, std::size_t elements)
      : encode_(task_of(spec, how, elements)),
        half_(cuda::mix_values_bytes(elements, spec.type) / 2),
        codes_(cuda::device_payload_bound(encode_)),
        values_(2 * half_),
        words_(4096) {
    mix_.elements = elements;
    mix_.type = spec.type;
    mix_.bits = how.bits;
    mix_.amplitude = how.amplitude;
    mix_.near_zero = spec.near_zero;
    if (spec.sides.any()) mix_.beside = sides_beside_values(spec.sides, spec.type);
  }

  void add_to(KernelLauncher& launcher, void* stream, void* span) {
    encode_.source = mix_.target = span;
    encode_.target = mix_.codes = codes_.as();
    mix_.values = values_.as();
    encode_.verdict = mix_.verdict = words_.as<cuda::Verdict>();
    encode_.counters = mix_.counters = words_.as<cuda::Counters>(1024);
    cuda::DeviceTask again = encode_, decode = encode_;
    again.source = values_.as();
    decode.source = codes_.as();
    decode.target = values_.as(half_);
    decode.capacity = cuda::device_payload_bound(encode_);
    const StreamHandle handle{reinterpret_cast<std::uintptr_t>(stream)};
    std::size_t queued = 0;
    check(cuda::encode_on_device(launcher, {&encode_, 1}, handle, &queued), launcher);
    check(cuda::spread_on_device(launcher, {&mix_, 1}, handle, &queued), launcher);
    check(cuda::encode_on_device(launcher, {&again, 1}, handle, &queued), launcher);
    check(cuda::decode_on_device(launcher, {&decode, 1}, handle, &queued), launcher);
    check(cuda::mix_on_device(launcher, {&mix_, 1}, handle, &queued), launcher);
  }
  void clear(void* stream) { words_.fill(0, stream); }
  cuda::Outcome outcome() {
    cuda::Verdict verdict;
    words_.read(&verdict, sizeof verdict);
    return verdict.outcome;
  }

 private:
  static cuda::DeviceTask task_of(const block::BlockSpec& spec, const block::Disturbance& how,
                                  std::size_t elements) {
    cuda::DeviceTask task;
    task.type = spec.type;
    task.bits = how.bits;
    task.elements = elements;
    task.nonce = how.nonce;
    return task;
  }

  cuda::DeviceTask encode_;
  cuda::MixTask mix_;
  const std::size_t half_;
  const DeviceMemory codes_, values_, words_;
};

inline float float_at(ElementType type, const std::vector<unsigned char>& data, std::size_t e) {
  if (type == ElementType::kFloat32) {
    float value;
    std::memcpy(&value, &data[4 * e], sizeof value);
    return value;
  }
  std::uint16_t word;
  std::memcpy(&word, &data[2 * e], sizeof word);
  return type == ElementType::kBFloat16 ? BFloat16::to_float(word) : Float16::to_float(word);
}

// Groups in which some element differs by more than sums are rounded by.
inline std::size_t groups_apart(ElementType type, const std::vector<unsigned char>& a,
                                const std::vector<unsigned char>& b) {
  const std::size_t elements = a.size() / element_size(type);
  const float unit = type == ElementType::kFloat32    ? 0x1p-22f
                     : type == ElementType::kBFloat16 ? 0x1p-6f
                                                      : 0x1p-9f;
  std::size_t count = 0;
  for (std::size_t begin = 0; begin < elements; begin += 256) {
    float largest = 0, most = 0;
    for (std::size_t e = begin; e < std::min(elements, begin + 256); ++e) {
      const float x = float_at(type, a, e), y = float_at(type, b, e);
      if (std::isfinite(x) != std::isfinite(y)) most = INFINITY;
      if (!std::isfinite(x) || !std::isfinite(y)) continue;
      largest = std::max(largest, std::fabs(x));
      most = std::max(most, std::fabs(x - y));
    }
    count += most > unit * largest ? 1 : 0;
  }
  return count;
}

// Returns how many spans have other noise than the host's.
inline unsigned check_noise(KernelLauncher& launcher, void* stream, unsigned* checked) {
  constexpr std::size_t kElements = 300'001;
  unsigned wrong = 0;
  for (const ElementType type :
       {ElementType::kFloat32, ElementType::kBFloat16, ElementType::kFloat16})
    for (const std::uint8_t bits : {1, 2, 3, 4, 6, 8})
      for (const bool once_restored : {false, true})
        for (const std::size_t shift : {std::size_t{0}, element_size(type)}) {
          std::vector<unsigned char> values = floats(type, kElements, bits, bits >= 3);
          const CodecSpec codec{.bits = bits};
          if (once_restored) {
            std::vector<unsigned char> payload(payload_bound(codec, type, kElements));
            const EncodeResult coded =
                encode({values.data(), kElements, type}, codec, 5, payload.data(), payload.size(),
                       serial_executor(), nullptr);
            if (coded.status != Status::kOk ||
                decode(payload.data(), coded.payload_bytes, values.data(), values.size(),
                       serial_executor()) != Status::kOk)
              continue;
          }
          const block::BlockSpec spec{
              .type = type, .bits = bits, .sides = {Sides::Kind::kClosed, false, -1, INFINITY}};
          const block::Disturbance how{bits, shift == 0 ? 1.0f : -0.5f, 77};
          std::vector<unsigned char> host = values, device = values;
          const block::ByteRange all{0, host.size()};
          bool good = block::disturb_block(host.data(), {host.data(), host.size(), &all, 1}, spec,
                                           how, serial_executor());
          NoiseOnGpu noise(spec, how, kElements);
          const DeviceMemory span(values.size() + shift);
          noise.clear(stream);
          check(driver.stream_synchronize(stream), "clear");
          span.write(values.data(), values.size(), shift);
          noise.add_to(launcher, stream, span.as(shift));
          check(driver.stream_synchronize(stream), "noise");
          span.read(device.data(), device.size(), shift);
          const std::size_t apart = groups_apart(type, host, device);
          good &= noise.outcome() == cuda::Outcome::kDone && apart <= 2 && device != values;
          if (!good)
            std::fprintf(stderr,
                         "gpu_check: noise of %s at %u bits%s, shift %zu: %zu groups differ\n",
                         type_name(type), bits, once_restored ? ", restored" : "", shift, apart);
          wrong += good ? 0 : 1;
          ++*checked;
        }
  return wrong;
}

// Nanoseconds for a MiB of float32, in pieces as the codec has them.
inline double time_noise(KernelLauncher& launcher, void* stream) {
  constexpr std::size_t kElements = std::size_t{1} << 20, kPieces = 64;
  const block::BlockSpec spec{.type = ElementType::kFloat32, .bits = 4};
  NoiseOnGpu noise(spec, {4, 1, 7}, kElements);
  const std::vector<unsigned char> values = floats(ElementType::kFloat32, kElements, 3, true);
  const DeviceMemory span(kPieces * values.size());
  noise.clear(stream);
  check(driver.stream_synchronize(stream), "clear");
  for (std::size_t i = 0; i < kPieces; ++i)
    span.write(values.data(), values.size(), i * values.size());
  const double us = microseconds(stream, [&] {
    for (std::size_t i = 0; i < kPieces; ++i)
      noise.add_to(launcher, stream, span.as(i * values.size()));
  });
  return us * 1e3 / double(kPieces * values.size() >> 20);
}

// A vector on the GPU, and its sums there.
class SketchOnGpu {
 public:
  SketchOnGpu(ElementType type, const std::vector<unsigned char>& values)
      : elements_(values.size() / element_size(type)),
        values_(values.size()),
        parts_(sketch_parts(elements_) * kSketchPart * sizeof(double)) {
    values_.write(values.data(), values.size());
    task_ = {values_.as(), parts_.as<double>(), elements_, type, 9};
  }
  void launch(KernelLauncher& launcher, void* stream) {
    std::size_t queued = 0;
    check(cuda::sketch_on_device(launcher, {&task_, 1},
                                 StreamHandle{reinterpret_cast<std::uintptr_t>(stream)}, &queued),
          launcher);
  }
  // Once the stream has passed the launch. Returns the sum of squares.
  double read(Sketch& sketch) {
    std::vector<double> parts(sketch_parts(elements_) * kSketchPart);
    parts_.read(parts.data(), parts.size() * sizeof(double));
    return add_parts(parts, sketch);
  }

 private:
  const std::size_t elements_;
  const DeviceMemory values_, parts_;
  cuda::SketchTask task_;
};

// Returns how many sketches are others than the host's.
inline unsigned check_sketches(KernelLauncher& launcher, void* stream, unsigned* checked) {
  unsigned wrong = 0;
  for (const ElementType type :
       {ElementType::kFloat32, ElementType::kBFloat16, ElementType::kFloat16})
    for (const std::size_t elements : {1u, 256u, 257u, 131'073u, 3'000'001u}) {
      const std::vector<unsigned char> values = floats(type, elements, 4, false);
      std::vector<float> wide(elements);
      double squares = 0;
      for (std::size_t e = 0; e < elements; ++e) {
        wide[e] = float_at(type, values, e);
        squares += double(wide[e]) * wide[e];
      }
      Sketch expected{}, found{};
      add_to_sketch(std::span<const float>(wide), 0, elements, 9, expected);
      SketchOnGpu sketch(type, values);
      sketch.launch(launcher, stream);
      check(driver.stream_synchronize(stream), "sketch");
      const double energy = sketch.read(found);
      // Sums are rounded in another order.
      const double most = 1e-12 * std::sqrt(squares * double(elements));
      bool good = std::fabs(energy - squares) <= 1e-12 * squares;
      for (std::size_t b = 0; b < kSketchBuckets; ++b)
        good &= std::fabs(found[b] - expected[b]) <= most;
      if (!good)
        std::fprintf(stderr, "gpu_check: the sketch of %zu %s differs\n", elements,
                     type_name(type));
      wrong += good ? 0 : 1;
      ++*checked;
    }
  return wrong;
}

// Nanoseconds for a MiB of float32.
inline double time_sketch(KernelLauncher& launcher, void* stream) {
  constexpr std::size_t kElements = std::size_t{1} << 26;
  SketchOnGpu sketch(ElementType::kFloat32, std::vector<unsigned char>(4 * kElements));
  const double us = microseconds(stream, [&] { sketch.launch(launcher, stream); });
  return us * 1e3 / double(kElements >> 18);
}

}  // namespace pleat::compress::test
