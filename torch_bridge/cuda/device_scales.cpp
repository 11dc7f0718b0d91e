#include "torch_bridge/cuda/device_scales.h"

#include <algorithm>
#include <atomic>
#include <numeric>

#include "compress/block/scales.h"
#include "compress/format.h"

namespace pleat::bridge::cuda {
namespace {

using allocator::EncodeRequest;
using allocator::StreamId;
using allocator::TensorKey;
using allocator::cuda::kSuccess;
using compress::block::BlockSpec;
using compress::block::measure_scales;
using compress::block::Scales;

constexpr std::size_t kMostRows = 256, kMostRuns = 16;  // of a sample

// A sample consists of runs of so many units, which are whole rows and whole turns of the channels.
struct Runs {
  std::size_t unit = 0;  // bytes; 0: no sample tells anything
  std::size_t units = 0, count = 0, each = 0;

  Runs(const BlockSpec& spec, std::size_t bytes) noexcept {
    const auto or_one = [](std::size_t n) { return std::max<std::size_t>(n, 1); };
    const std::size_t turn = or_one(std::size_t{spec.channels.count} * spec.channels.inner);
    const std::size_t row = spec.rows_have_exponents() ? spec.lines.length : 1;
    std::size_t elements = std::lcm(turn, row);
    if (elements == 1) elements = compress::kGroupElements;
    const std::size_t size = elements * element_size(spec.type);
    const std::size_t most = std::min({kMostRows, bytes / size, DeviceScales::kSampleBytes / size});
    if (most == 0) return;
    unit = size;
    units = bytes / size;
    count = std::min(kMostRuns, most);
    each = most / count;
  }
  // The first unit of a run.
  [[nodiscard]] std::size_t first(std::size_t run) const noexcept {
    return compress::block::spread_place(run, units - each + 1);
  }
};

bool may_sample(const EncodeRequest& request, const BlockSpec& spec) noexcept {
  if (request.closed || request.range_count != 1 || !may_have_scales(spec)) return false;
  const auto [begin, end] = request.ranges[0];
  const std::size_t size = element_size(spec.type);
  return begin % size == 0 && end % size == 0 && Runs(spec, end - begin).unit != 0;
}

}  // namespace

int DeviceScales::open() noexcept {
  void* memory = nullptr;
  const int error = life_.note(
      driver_.host_allocate(&memory, kSamples * kSampleBytes, allocator::cuda::kSeenByDevices));
  if (error != kSuccess) return error;
  const std::lock_guard<std::mutex> guard(mutex_);
  try {
    idle_.reserve(kSamples);
    under_way_.reserve(kSamples);
  } catch (...) {
    return -1;
  }
  for (std::size_t i = 0; i < kSamples; ++i)
    idle_.push_back(static_cast<std::byte*>(memory) + i * kSampleBytes);
  return kSuccess;
}

KeyScales::Answer DeviceScales::ask(const EncodeRequest& request) noexcept {
  const BlockSpec spec = BlockSpec::unpack(request.choice.words);
  if (!may_sample(request, spec)) return {};
  try {
    return scales_.ask(request.key, request.choice);
  } catch (...) {
    return {};
  }
}

void DeviceScales::sample(const EncodeRequest& request) noexcept {
  const BlockSpec spec = BlockSpec::unpack(request.choice.words);
  const Runs runs(spec, request.ranges[0].end - request.ranges[0].begin);
  const std::lock_guard<std::mutex> guard(mutex_);
  if (idle_.empty()) read_what_has_come();
  if (idle_.empty()) return;
  Sample sample{request.key,    request.choice,
                request.stream, runs.count * runs.each * runs.unit / element_size(spec.type),
                idle_.back(),   words_.take_slot()};
  if (!sample.done) return;
  idle_.pop_back();
  const auto from = reinterpret_cast<std::uint64_t>(request.source) + request.ranges[0].begin;
  const auto to = reinterpret_cast<std::uint64_t>(sample.memory);
  auto* const stream = reinterpret_cast<void*>(request.stream.value);
  const std::size_t bytes = runs.each * runs.unit;
  int error = kSuccess;
  for (std::size_t run = 0; run < runs.count && error == kSuccess; ++run)
    error = life_.note(
        driver_.copy(to + run * bytes, from + runs.first(run) * runs.unit, bytes, stream));
  if (error == kSuccess) error = life_.note(driver_.write_word(stream, sample.done.device, 1, 0));
  // What was queued before a failure may still write there, so it stays taken then.
  if (error == kSuccess) under_way_.push_back(sample);
}

void DeviceScales::give_back(const Sample& sample) noexcept {
  words_.give_slot(sample.done.host);
  idle_.push_back(sample.memory);  // has room: cannot throw
}

void DeviceScales::read_what_has_come() noexcept {
  std::erase_if(under_way_, [this](const Sample& sample) {
    const std::atomic_ref<std::uint32_t> word(*static_cast<std::uint32_t*>(sample.done.host));
    if (word.load(std::memory_order_acquire) == 0) return false;
    try {
      const BlockSpec spec = BlockSpec::unpack(sample.choice.words);
      scales_.learn(sample.key, sample.choice, [&](const Scales& before) {
        return measure_scales({sample.memory, sample.elements, spec.type}, spec, before);
      });
    } catch (...) {  // no memory: the key keeps its scales
    }
    give_back(sample);
    return true;
  });
}

std::optional<StreamId> DeviceScales::expects(TensorKey key) noexcept {
  const std::lock_guard<std::mutex> guard(mutex_);
  read_what_has_come();
  const auto at = std::find_if(under_way_.begin(), under_way_.end(),
                               [&](const Sample& sample) { return sample.key == key; });
  return at == under_way_.end() ? std::nullopt : std::optional(at->stream);
}

std::optional<StreamId> DeviceScales::is_full() noexcept {
  const std::lock_guard<std::mutex> guard(mutex_);
  read_what_has_come();
  return !idle_.empty() || under_way_.empty() ? std::nullopt
                                              : std::optional(under_way_.front().stream);
}

void DeviceScales::forget(StreamId stream) noexcept {
  const std::lock_guard<std::mutex> guard(mutex_);
  std::erase_if(under_way_, [&](const Sample& sample) { return sample.stream == stream; });
}

}  // namespace pleat::bridge::cuda
