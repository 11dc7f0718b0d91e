// Codec speed against memcpy and memset, in one process. Google Benchmark; bytes_per_second counts
//   encode   bytes of the source        decode  bytes written        memcpy  bytes copied (n, not
//   2n)
// Options beyond Google Benchmark's: --isa=scalar|avx2|avx512, --mebibytes=256.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cmath>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "compress/codec.h"

namespace {

using namespace pleat::compress;

std::size_t buffer_bytes = std::size_t{256} << 20;

// A helper thread that waits for work, as ATen's intra-op pool has them.
class Pair {
 public:
  Pair() : helper_([this] { serve(); }) {}
  ~Pair() {
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
    }
    wake_.notify_all();
    helper_.join();
  }
  void run(std::size_t items, const std::function<void(std::size_t, std::size_t)>& body) {
    const std::size_t middle = items / 2;
    {
      const std::lock_guard lock(mutex_);
      body_ = &body;
      begin_ = middle;
      end_ = items;
    }
    wake_.notify_all();
    body(0, middle);
    std::unique_lock lock(mutex_);
    done_.wait(lock, [this] { return body_ == nullptr; });
  }

 private:
  void serve() {
    std::unique_lock lock(mutex_);
    for (;;) {
      wake_.wait(lock, [this] { return stop_ || body_ != nullptr; });
      if (stop_) return;
      const auto* const body = body_;
      lock.unlock();
      (*body)(begin_, end_);
      lock.lock();
      body_ = nullptr;
      done_.notify_all();
    }
  }
  std::mutex mutex_;
  std::condition_variable wake_, done_;
  const std::function<void(std::size_t, std::size_t)>* body_ = nullptr;
  std::size_t begin_ = 0, end_ = 0;
  bool stop_ = false;
  std::thread helper_;
};

const Executor& executor_of(int threads) {
  static Pair* const pair = new Pair;
  static const Executor two = [](std::size_t items, std::size_t grain,
                                 const std::function<void(std::size_t, std::size_t)>& body) {
    if (items <= grain)
      body(0, items);
    else
      pair->run(items, body);
  };
  return threads == 2 ? two : serial_executor();
}

// Grown once, kept, and touched: page faults are not what is measured.
unsigned char* buffer(int which, std::size_t bytes) {
  static std::vector<std::pair<unsigned char*, std::size_t>> buffers(3);
  auto& [data, size] = buffers[static_cast<std::size_t>(which)];
  if (size < bytes) {
    std::free(data);
    size = (bytes + (2u << 20)) / (2u << 20) * (2u << 20);
    data = static_cast<unsigned char*>(std::aligned_alloc(2u << 20, size));
    std::memset(data, 1, size);
  }
  return data;
}

void fill(ElementType type, unsigned char* data, std::size_t bytes) {
  std::mt19937_64 random(7);
  std::vector<unsigned char> tile(std::min<std::size_t>(bytes, 8 << 20));
  std::normal_distribution<float> normal;
  for (std::size_t at = 0; at < tile.size(); at += element_size(type)) {
    const float x = normal(random);
    std::uint32_t bits;
    std::memcpy(&bits, &x, 4);
    const std::int64_t number = static_cast<std::int64_t>(random() % 50000);
    const std::uint16_t half =
        static_cast<std::uint16_t>((bits >> 16 & 0x8000) | (0x3000 + (bits >> 10 & 0xFFF)));
    const std::uint16_t bfloat = static_cast<std::uint16_t>(bits >> 16);
    switch (type) {
      case ElementType::kFloat32:
        std::memcpy(&tile[at], &bits, 4);
        break;
      case ElementType::kBFloat16:
        std::memcpy(&tile[at], &bfloat, 2);
        break;
      case ElementType::kFloat16:
        std::memcpy(&tile[at], &half, 2);
        break;
      case ElementType::kInt64:
        std::memcpy(&tile[at], &number, 8);
        break;
      default:
        tile[at] = static_cast<unsigned char>(number & 1);
        break;
    }
  }
  for (std::size_t at = 0; at < bytes; at += tile.size())
    std::memcpy(data + at, tile.data(), std::min(tile.size(), bytes - at));
}

// The source of an encoder, which leaves it as it is: filled once per type. `mask`: two values.
const unsigned char* filled_source(ElementType type, bool mask) {
  static std::pair<ElementType, bool> present{ElementType::kBytes, false};
  unsigned char* const source = buffer(2, buffer_bytes);
  if (present == std::pair{type, mask}) return source;
  present = {type, mask};
  fill(type, source, buffer_bytes);
  for (std::size_t e = 0; mask && e < buffer_bytes / 4; ++e) {
    const float value = (e * 2654435761u >> 7 & 15) != 0 ? 1.0f / 0.9f : 0.0f;
    std::memcpy(source + 4 * e, &value, 4);
  }
  return source;
}

void encode_bench(benchmark::State& state, ElementType type, const CodecSpec& spec, int threads,
                  bool mask) {
  const std::size_t bytes = buffer_bytes, elements = bytes / element_size(type);
  const unsigned char* const source = filled_source(type, mask);
  const std::size_t bound = payload_bound(spec, type, elements);
  unsigned char* const payload = buffer(1, bound);
  std::uint64_t nonce = 0;
  std::size_t used = 0;
  for (auto _ : state) {
    SpanStatistics statistics;
    const EncodeResult result = encode({source, elements, type}, spec, ++nonce, payload, bound,
                                       executor_of(threads), &statistics);
    if (result.status != Status::kOk) state.SkipWithError("encode failed");
    used = result.payload_bytes;
  }
  state.SetBytesProcessed(static_cast<std::int64_t>(state.iterations() * bytes));
  state.counters["ratio"] = double(bytes) / double(used);
}

void decode_bench(benchmark::State& state, ElementType type, const CodecSpec& spec, int threads) {
  const std::size_t bytes = buffer_bytes, elements = bytes / element_size(type);
  unsigned char* const target = buffer(0, bytes);
  const std::size_t bound = payload_bound(spec, type, elements);
  unsigned char* const payload = buffer(1, bound);
  const EncodeResult result = encode({filled_source(type, false), elements, type}, spec, 1, payload,
                                     bound, executor_of(2), nullptr);
  for (auto _ : state) {
    if (decode(payload, result.payload_bytes, target, bytes, executor_of(threads)) != Status::kOk)
      state.SkipWithError("decode failed");
  }
  state.SetBytesProcessed(static_cast<std::int64_t>(state.iterations() * bytes));
}

void in_place_bench(benchmark::State& state, ElementType type, unsigned bits, int threads) {
  const std::size_t bytes = buffer_bytes, elements = bytes / element_size(type);
  unsigned char* const source = buffer(0, bytes);
  const unsigned char* const contents = filled_source(type, false);
  CodecSpec spec;
  spec.bits = static_cast<std::uint8_t>(bits);
  for (auto _ : state) {
    state.PauseTiming();
    std::memcpy(source, contents, bytes);
    state.ResumeTiming();
    const EncodeResult result =
        encode_in_place(source, bytes, elements, type, spec, 1, executor_of(threads), nullptr);
    if (result.status != Status::kOk) state.SkipWithError("encode failed");
  }
  state.SetBytesProcessed(static_cast<std::int64_t>(state.iterations() * bytes));
}

// In parts of so many bytes, or one for each thread: libraries copy large parts past the caches,
// which is faster on some machines and slower on others. The faster is what codecs are held
// against.
void memory_bench(benchmark::State& state, bool copy, bool whole, int threads) {
  const std::size_t bytes = buffer_bytes;
  const std::size_t part = whole ? bytes / static_cast<std::size_t>(threads) : std::size_t{1} << 20;
  const unsigned char* const source = buffer(1, bytes);
  unsigned char* const target = buffer(0, bytes);
  for (auto _ : state) {
    executor_of(threads)(bytes / part, 1, [&](std::size_t begin, std::size_t end) {
      for (std::size_t at = begin; at < end; ++at) {
        if (copy)
          std::memcpy(target + at * part, source + at * part, part);
        else
          std::memset(target + at * part, 3, part);
      }
    });
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(static_cast<std::int64_t>(state.iterations() * bytes));
}

void add(const std::string& name, std::function<void(benchmark::State&)> body) {
  benchmark::RegisterBenchmark(name.c_str(), [body](benchmark::State& state) { body(state); })
      ->UseRealTime()
      ->Unit(benchmark::kMillisecond);
}

void add_both(const std::string& what, ElementType type, const CodecSpec& spec, int threads) {
  add("encode/" + what, [=](benchmark::State& s) { encode_bench(s, type, spec, threads, false); });
  add("decode/" + what, [=](benchmark::State& s) { decode_bench(s, type, spec, threads); });
}

}  // namespace

int main(int argc, char** argv) {
  int kept = 1;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument.rfind("--isa=", 0) == 0) {
      const std::string wanted = argument.substr(6);
      bool found = false;
      for (const Isa isa : {Isa::kAuto, Isa::kScalar, Isa::kAvx2, Isa::kAvx512}) {
        if (wanted != isa_name(isa) || !isa_supported(isa)) continue;
        set_isa(isa);
        found = true;
      }
      if (!found) {
        std::fprintf(stderr, "pleat_codec_bench: this CPU has no %s\n", wanted.c_str());
        return 1;
      }
    } else if (argument.rfind("--mebibytes=", 0) == 0) {
      buffer_bytes = std::strtoull(argument.c_str() + 12, nullptr, 10) << 20;
    } else {
      argv[kept++] = argv[i];
    }
  }
  argc = kept;
  for (const int threads : {1, 2}) {
    const std::string suffix = "/threads:" + std::to_string(threads);
    for (const bool whole : {true, false}) {
      const std::string how = (whole ? "/whole" : "/parts") + suffix;
      add("memcpy" + how, [=](benchmark::State& s) { memory_bench(s, true, whole, threads); });
      add("memset" + how, [=](benchmark::State& s) { memory_bench(s, false, whole, threads); });
    }
    struct Case {
      const char* name;
      ElementType type;
    };
    for (const Case& c :
         {Case{"float32", ElementType::kFloat32}, Case{"bfloat16", ElementType::kBFloat16},
          Case{"float16", ElementType::kFloat16}}) {
      for (const unsigned bits : {4u, 2u, 6u, 8u}) {
        const std::string what = std::string(c.name) + "/bits:" + std::to_string(bits) + suffix;
        add_both(what, c.type, {static_cast<std::uint8_t>(bits)}, threads);
      }
      const CodecSpec rotated{4, false, Transform::kHadamard};
      add_both(std::string("hadamard/") + c.name + "/bits:4" + suffix, c.type, rotated, threads);
      const CodecSpec scaled{2, false, Transform::kHadamardScaled};
      add_both(std::string("scaled/") + c.name + "/bits:2" + suffix, c.type, scaled, threads);
      add_both(std::string("lossless/") + c.name + suffix, c.type, {}, threads);
      const CodecSpec positive{.sides = {Sides::Kind::kOpen, true, 0, INFINITY}};
      add_both(std::string("sides/") + c.name + "/bits:1" + suffix, c.type, positive, threads);
      const CodecSpec sign{.sides = {Sides::Kind::kThree, false, 0, 0}};
      add_both(std::string("sides/") + c.name + "/bits:2" + suffix, c.type, sign, threads);
    }
    for (const Case& c : {Case{"bool", ElementType::kBool}, Case{"int64", ElementType::kInt64}}) {
      add_both(c.name + suffix, c.type, {}, threads);
    }
    add("encode/mask/bits:4" + suffix,
        [=](benchmark::State& s) { encode_bench(s, ElementType::kFloat32, {4}, threads, true); });
    add("encode_in_place/float32/bits:4" + suffix,
        [=](benchmark::State& s) { in_place_bench(s, ElementType::kFloat32, 4, threads); });
  }
  benchmark::AddCustomContext("isa", isa_name(active_isa()));
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}
