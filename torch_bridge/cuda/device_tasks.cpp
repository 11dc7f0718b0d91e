#include "torch_bridge/cuda/device_tasks.h"

#include <span>

#include "allocator/cuda/device_words.h"

namespace pleat::bridge::cuda {
namespace {

using allocator::StreamId;
using allocator::cuda::DeviceWords;
using compress::KernelLauncher;
using compress::LaunchStatus;
using compress::cuda::Counters;
using compress::cuda::DeviceTask;
using compress::cuda::kMostJobs;
using compress::cuda::LineTask;
using compress::cuda::NearZeroTask;
using compress::cuda::Verdict;

constexpr std::size_t kUnreadVerdicts = kMostJobs * sizeof(Counters);
static_assert(kUnreadVerdicts + kMostJobs * sizeof(Verdict) <= DeviceWords::kWorkspaceBytes);

void* at(void* memory, std::size_t bytes) noexcept {
  return static_cast<std::byte*>(memory) + bytes;
}

// True if the driver has taken all of them; there may be none.
template <class Task>
bool launch(LaunchStatus (*queue)(KernelLauncher&, std::span<const Task>, compress::StreamHandle,
                                  std::size_t*) noexcept,
            KernelLauncher& launcher, const std::vector<Task>& tasks, StreamId stream) noexcept {
  std::size_t queued = 0;
  return tasks.empty() ||
         queue(launcher, tasks, compress::StreamHandle{stream.value}, &queued) == LaunchStatus::kOk;
}

}  // namespace

// The launches of a stream run one after the other, so those of further jobs share the memory.
Counters* Workspace::counters(std::size_t task) const noexcept {
  return reinterpret_cast<Counters*>(address_ + task % kMostJobs * sizeof(Counters));
}
Verdict* Workspace::unread(std::size_t task) const noexcept {
  return reinterpret_cast<Verdict*>(address_ + kUnreadVerdicts +
                                    task % kMostJobs * sizeof(Verdict));
}

void DeviceTasks::reserve(const DeviceForm& form, std::size_t spans) {
  codes.reserve(spans);
  if (form.has_sides_beside()) sides.reserve(spans);
  if (form.has_lines()) lines.reserve(spans);
  if (form.most_near_zero != 0) near_zero.reserve(spans);
}

void DeviceTasks::add(Way way, const DeviceForm& form, const SpanPlace& place, void* elements,
                      void* payload, Workspace workspace) noexcept {
  const std::size_t number = codes.size();
  const auto complete = [&](auto& task) {
    task.verdict = workspace.unread(number);
    task.counters = workspace.counters(number);
  };
  const auto between = [&](DeviceTask& task, std::size_t part) {
    task.source = way == Way::kEncode ? elements : at(payload, part);
    task.target = way == Way::kEncode ? at(payload, part) : elements;
    complete(task);
  };
  DeviceTask& code = codes.emplace_back(form.codes_task(place.elements));
  between(code, place.codes);
  code.capacity = place.codes_room;
  code.scratch = at(payload, place.scratch);
  if (form.has_sides_beside()) {
    DeviceTask& side = sides.emplace_back(form.sides_task(place.elements));
    between(side, place.sides);
    side.capacity = compress::cuda::device_payload_bytes(side);
  }
  if (form.most_near_zero != 0) {
    NearZeroTask& near = near_zero.emplace_back();
    near.source = near.target = elements;
    near.section = at(payload, place.near_zero);
    near.elements = place.elements;
    near.type = form.type;
    near.most = form.most_near_zero;
    complete(near);
  }
  if (form.has_lines()) {
    LineTask& line = lines.emplace_back();
    line.source = line.target = elements;
    line.codes = at(payload, place.codes);
    line.section = at(payload, place.lines);
    line.elements = place.elements;
    line.type = form.type;
    line.bits = form.bits;
    line.transform = form.transform;
    line.lines = form.lines();
    line.most = form.most_lines;
    complete(line);
  }
}

bool DeviceTasks::launch_encode(KernelLauncher& launcher, StreamId stream) const noexcept {
  namespace device = compress::cuda;
  return launch(&device::encode_on_device, launcher, codes, stream) &&
         launch(&device::encode_on_device, launcher, sides, stream) &&
         launch(&device::keep_near_zero_on_device, launcher, near_zero, stream) &&
         launch(&device::keep_lines_on_device, launcher, lines, stream);
}

bool DeviceTasks::launch_decode(KernelLauncher& launcher, StreamId stream) const noexcept {
  namespace device = compress::cuda;
  return launch(&device::decode_on_device, launcher, codes, stream) &&
         launch(&device::move_to_sides_on_device, launcher, sides, stream) &&
         launch(&device::restore_near_zero_on_device, launcher, near_zero, stream) &&
         launch(&device::restore_lines_on_device, launcher, lines, stream);
}

}  // namespace pleat::bridge::cuda
