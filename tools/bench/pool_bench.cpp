// Speed of the pool and of the payload arena, and how well resident memory follows live memory.
//
//   pair      ns of one free and one allocate of random size in a steady population
//   step      a training step replayed: forward saves, transients, payloads, backward; reports
//             requested_over_reserved = peak requested bytes / peak reserved bytes (want >= 0.90)
//             and faulted = bytes of pages touched anew per step once warm, as a share of the peak
#include <benchmark/benchmark.h>

#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "allocator/host/host_device.h"
#include "allocator/host/pool.h"
#include "allocator/store/payload_arena.h"

namespace {

using namespace pleat::allocator;

// Log-uniform, as activations are; half of them from a few recurring sizes, as layers repeat.
class Sizes {
 public:
  Sizes(std::uint64_t seed, double low, double high) : random_(seed), low_(low), high_(high) {
    for (std::size_t& size : recurring_) size = fresh();
  }
  std::size_t next() {
    return (random_() & 1) != 0 ? recurring_[random_() % std::size(recurring_)] : fresh();
  }
  std::uint64_t random() { return random_(); }

 private:
  std::size_t fresh() {
    const double u =
        std::uniform_real_distribution<double>(std::log(low_), std::log(high_))(random_);
    return static_cast<std::size_t>(std::exp(u));
  }
  std::mt19937_64 random_;
  double low_, high_;
  std::size_t recurring_[16];
};

constexpr double kKiB = 1024;
constexpr double kMiB = 1024 * kKiB;

// Nothing here writes to the blocks, so the memory need not exist.
PoolOptions large_range() {
  PoolOptions options;
  options.reserve_bytes = std::size_t{1} << 40;
  return options;
}

void pair(benchmark::State& state, double low, double high) {
  HostDevice device;
  Statistics statistics;
  Pool pool(device, large_range(), statistics);
  Sizes sizes(1, low, high);
  std::vector<Block*> live(static_cast<std::size_t>(state.range(0)));
  for (Block*& block : live) block = pool.allocate(sizes.next());
  // Drawn ahead, so that the generator is not part of the measurement.
  struct Step {
    std::uint32_t victim;
    std::size_t bytes;
  };
  std::vector<Step> steps(1 << 16);
  for (Step& step : steps) {
    step = {static_cast<std::uint32_t>(sizes.random() % live.size()), sizes.next()};
  }
  for (std::size_t i = 0; i < steps.size(); ++i) {  // into the steady state
    pool.free(live[steps[i].victim]);
    live[steps[i].victim] = pool.allocate(steps[i].bytes);
  }
  const auto touched = statistics.read(StatKind::kReserved).allocated;
  std::size_t i = 0;
  for (auto _ : state) {
    const Step& step = steps[i++ & (steps.size() - 1)];
    pool.free(live[step.victim]);
    live[step.victim] = pool.allocate(step.bytes);
  }
  const auto active = static_cast<double>(statistics.current(StatKind::kActive));
  state.counters["active_MB"] = active / 1e6;
  state.counters["fresh_bytes"] =
      static_cast<double>(statistics.read(StatKind::kReserved).allocated - touched) /
      static_cast<double>(state.iterations());
  state.counters["requested_over_reserved"] =
      static_cast<double>(statistics.read(StatKind::kRequested).peak) /
      static_cast<double>(statistics.read(StatKind::kReserved).peak);
}
BENCHMARK_CAPTURE(pair, large, 64 * kKiB, 64 * kMiB)->Arg(100)->Arg(500)->Arg(2000)->Arg(10000);
BENCHMARK_CAPTURE(pair, small, 4 * kKiB, 1 * kMiB)->Arg(500)->Arg(10000);

void owns_and_find(benchmark::State& state) {
  HostDevice device;
  Statistics statistics;
  Pool pool(device, large_range(), statistics);
  Block* block = pool.allocate(1 << 20);
  for (auto _ : state) {
    benchmark::DoNotOptimize(pool.owns(block->begin));
    benchmark::DoNotOptimize(pool.find(block->begin));
  }
}
BENCHMARK(owns_and_find);

void payload_pair(benchmark::State& state) {
  HostDevice device;
  Statistics statistics;
  Pool pool(device, large_range(), statistics);
  PayloadArena arena(pool);
  Sizes sizes(2, 8 * kKiB, 2 * kMiB);
  std::vector<PayloadSlot> live(static_cast<std::size_t>(state.range(0)));
  for (PayloadSlot& slot : live) slot = arena.allocate(sizes.next());
  std::vector<std::pair<std::size_t, std::size_t>> steps(1 << 14);
  for (auto& step : steps) step = {sizes.random() % live.size(), sizes.next()};
  std::size_t i = 0;
  for (auto _ : state) {
    const auto& [victim, bytes] = steps[i++ & (steps.size() - 1)];
    arena.free(live[victim]);
    live[victim] = arena.allocate(bytes);
  }
  for (PayloadSlot& slot : live) arena.free(slot);
}
BENCHMARK(payload_pair)->Arg(100)->Arg(1000);

// A step of a deep network: per layer an activation and transients, the activation released two
// layers later and turned into a payload of an eighth; backward restores it, makes two gradients,
// frees all.
struct Layer {
  std::size_t activation, transient;
};
void one_step(Pool& pool, PayloadArena& arena, const std::vector<Layer>& layers, bool compress) {
  std::vector<Block*> saved(layers.size());
  std::vector<PayloadSlot> payloads(layers.size());
  const auto release = [&](std::size_t i) {
    if (!compress) return;
    payloads[i] = arena.allocate(layers[i].activation / 7 + 64);
    arena.shrink(payloads[i], layers[i].activation / 8 + 64);
    pool.free(saved[i]);
    saved[i] = nullptr;
  };
  for (std::size_t i = 0; i < layers.size(); ++i) {
    Block* transient = pool.allocate(layers[i].transient);
    saved[i] = pool.allocate(layers[i].activation);
    if (i >= 2) release(i - 2);
    pool.free(transient);
  }
  for (std::size_t i = layers.size() - 2; i < layers.size(); ++i) release(i);
  Block* gradient = pool.allocate(layers.back().activation);
  for (std::size_t i = layers.size(); i-- > 0;) {
    if (compress) saved[i] = pool.allocate(layers[i].activation);
    Block* transient = pool.allocate(layers[i].transient);
    Block* next = pool.allocate(layers[i > 0 ? i - 1 : 0].activation);
    pool.free(gradient);
    gradient = next;
    pool.free(transient);
    pool.free(saved[i]);
    if (compress) arena.free(payloads[i]);
  }
  pool.free(gradient);
}

void step(benchmark::State& state, bool compress) {
  HostDevice device;
  Statistics statistics;
  PoolOptions options = large_range();
  options.resident_slack_fraction = static_cast<double>(state.range(1)) / 100;
  Pool pool(device, options, statistics);
  PayloadArena arena(pool);
  Sizes sizes(3, 256 * kKiB, static_cast<double>(state.range(0)) * kMiB);
  std::vector<Layer> layers(160);
  for (Layer& layer : layers) layer = {sizes.next(), sizes.next()};
  for (int i = 0; i < 3; ++i) one_step(pool, arena, layers, compress);
  const auto touched = statistics.read(StatKind::kReserved).allocated;
  for (auto _ : state) one_step(pool, arena, layers, compress);
  const auto reserved = statistics.read(StatKind::kReserved);
  const auto requested = statistics.read(StatKind::kRequested);
  state.counters["requested_over_reserved"] =
      static_cast<double>(requested.peak) / static_cast<double>(reserved.peak);
  state.counters["faulted"] = static_cast<double>(reserved.allocated - touched) /
                              static_cast<double>(state.iterations()) /
                              static_cast<double>(reserved.peak);
  state.counters["peak_MB"] = static_cast<double>(reserved.peak) / 1e6;
  state.counters["ns_per_pair"] = benchmark::Counter(
      static_cast<double>(layers.size()) * (compress ? 5 : 4),
      benchmark::Counter::kIsIterationInvariantRate | benchmark::Counter::kInvert);
}
BENCHMARK_CAPTURE(step, raw, false)->Args({16, 4})->Args({64, 4})->Args({64, 0})->Args({64, 10});
BENCHMARK_CAPTURE(step, compressed, true)
    ->Args({4, 4})
    ->Args({16, 4})
    ->Args({64, 4})
    ->Args({64, 0})
    ->Args({64, 10});

}  // namespace

BENCHMARK_MAIN();
