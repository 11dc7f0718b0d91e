// How the blocks of a CUDA device come back: decoded, with noise for whoever asks what that would
// do, or as codes that the host reads.
#include <algorithm>
#include <mutex>

#include "torch_bridge/cuda/device_block_codec.h"
#include "torch_bridge/cuda/device_noise.h"
#include "torch_bridge/cuda/device_tasks.h"

namespace pleat::bridge::cuda {
namespace {

using allocator::CodecStatus;
using allocator::DecodeRequest;
using allocator::PayloadView;
using allocator::StreamId;
using allocator::cuda::DeviceContext;
using compress::cuda::DeviceTask;

template <class T>
T* at_address(std::uint64_t address) noexcept {
  return reinterpret_cast<T*>(address);
}
std::byte* advance(const void* from, std::size_t bytes) noexcept {
  return const_cast<std::byte*>(static_cast<const std::byte*>(from)) + bytes;
}

}  // namespace

// ---- turns --------------------------------------------------------------------------------------

// A block that was coded must come back on any stream. Those that have no workspace take turns, and
// each waits for its own to end.
struct DeviceBlockCodec::RestoringTurn {
  std::uint64_t workspace = 0;  // 0: there is none
  bool of_graph = false;        // the launches become part of a graph
  std::unique_lock<std::mutex> last;
};

DeviceBlockCodec::RestoringTurn DeviceBlockCodec::take_turn(StreamId stream) noexcept {
  RestoringTurn turn;
  int captured = 0;
  const bool known = life_.note(driver_.stream_capturing(at_address<void>(stream.value),
                                                         &captured)) == allocator::cuda::kSuccess;
  turn.of_graph = known && captured != 0;
  turn.workspace = turn.of_graph ? words_.workspace_of_a_graph() : words_.workspace(stream);
  if (turn.workspace == 0 && known) [[unlikely]] {
    turn.last = std::unique_lock<std::mutex>(last_workspace_mutex_);
    turn.workspace = words_.last_workspace();
  }
  return turn;
}

CodecStatus DeviceBlockCodec::end_turn(const RestoringTurn& turn, StreamId stream,
                                       bool launched) noexcept {
  if (!launched) life_.note(launcher_.driver_error());
  if (turn.last.owns_lock()) {
    life_.note(driver_.stream_synchronize(at_address<void>(stream.value)));
  }
  return launched ? CodecStatus::kOk : CodecStatus::kFailed;
}

// ---- decode -------------------------------------------------------------------------------------

CodecStatus DeviceBlockCodec::decode(const DecodeRequest& request) noexcept {
  if (request.function != 0) return CodecStatus::kFailed;
  const CodecStatus decoded =
      request.payload.data != nullptr ? decode_payload(request) : CodecStatus::kOk;
  return decoded == CodecStatus::kOk && request.noise != nullptr ? add_noise(request) : decoded;
}

CodecStatus DeviceBlockCodec::decode_payload(const DecodeRequest& request) noexcept {
  const auto& [payload, target, target_bytes, stream, noise, function, scratch] = request;
  const DeviceForm form = DeviceForm::unpack(payload.form);
  const DeviceContext context(driver_, life_, device_);
  if (!context) return CodecStatus::kFailed;
  std::size_t covered = 0;
  if (form.kind != FormKind::kNothing) {
    for (std::size_t i = 0; i < payload.range_count; ++i) {
      covered += payload.ranges[i].end - payload.ranges[i].begin;
    }
  }
  if (covered != target_bytes &&
      life_.note(driver_.set_bytes(reinterpret_cast<std::uint64_t>(target), 0, target_bytes,
                                   at_address<void>(stream.value))) != allocator::cuda::kSuccess) {
    return CodecStatus::kFailed;
  }
  if (form.kind == FormKind::kNothing) return CodecStatus::kOk;
  const RestoringTurn turn = take_turn(stream);
  DeviceTasks tasks;
  if (turn.workspace == 0 || !restoring_tasks(payload, target, turn, tasks)) {
    return CodecStatus::kFailed;
  }
  return end_turn(turn, stream, tasks.launch_decode(launcher_, stream));
}

// False: there is no memory for them.
bool DeviceBlockCodec::restoring_tasks(const PayloadView& payload, void* target,
                                       const RestoringTurn& turn, DeviceTasks& tasks) noexcept {
  const DeviceForm form = DeviceForm::unpack(payload.form);
  try {
    tasks.reserve(form, payload.range_count);
  } catch (...) {
    return false;
  }
  std::size_t end = 0;
  for (std::size_t i = 0; i < payload.range_count; ++i) {
    const allocator::ByteRange& range = payload.ranges[i];
    const SpanPlace place = place_span(form, range.end - range.begin, end);
    end = place.end();
    tasks.add(DeviceTasks::Way::kDecode, form, place, advance(target, range.begin),
              advance(payload.data, 0), Workspace(turn.workspace));
    DeviceTask& codes = tasks.codes.back();
    codes.capacity = std::min(place.codes_room, payload.bytes - place.codes);
    if (turn.of_graph) codes.scratch = advance(codes.scratch, (place.codes - place.scratch) / 2);
  }
  return true;
}

std::vector<CodedSpan> DeviceBlockCodec::coded_spans(const PayloadView& payload) const {
  const DeviceForm form = DeviceForm::unpack(payload.form);
  std::vector<CodedSpan> spans;
  if (form.kind != FormKind::kLossy) return spans;
  std::size_t end = 0;
  for (std::size_t i = 0; i < payload.range_count; ++i) {
    CodedSpan span;
    span.span_bytes = payload.ranges[i].end - payload.ranges[i].begin;
    const SpanPlace place = place_span(form, span.span_bytes, end);
    end = place.end();
    span.offset = place.codes;
    span.bytes = std::min(place.codes_room, payload.bytes - place.codes);
    span.form = {.shape = compress::block::BlockShape::kSingle,
                 .type = form.type,
                 .bits = form.bits,
                 .transform = form.transform,
                 .spans = 1,
                 .elements = place.elements};
    span.beside_bytes = place.codes - place.sides;
    spans.push_back(span);
  }
  return spans;
}

// ---- noise --------------------------------------------------------------------------------------

std::size_t DeviceBlockCodec::decode_scratch(const DecodeRequest& request) noexcept {
  if (request.noise == nullptr) return 0;
  const DeviceNoise noise(*request.noise, request.payload);
  return noise.any() ? noise.scratch(request.target_bytes) : 0;
}

CodecStatus DeviceBlockCodec::add_noise(const DecodeRequest& request) noexcept {
  const PayloadView& payload = request.payload;
  const StreamId stream = request.stream;
  const DeviceNoise noise(*request.noise, request.payload);
  if (!noise.any()) return CodecStatus::kOk;
  if (request.scratch == nullptr) return CodecStatus::kFailed;
  const DeviceContext context(driver_, life_, device_);
  if (!context) return CodecStatus::kFailed;
  const RestoringTurn turn = take_turn(stream);
  DeviceTasks tasks;
  if (turn.workspace == 0 ||
      (payload.data != nullptr && !restoring_tasks(payload, request.target, turn, tasks))) {
    return CodecStatus::kFailed;
  }
  bool launched = true;
  for (std::size_t i = 0; launched && i < payload.range_count; ++i) {
    const allocator::ByteRange& range = payload.ranges[i];
    if (!noise.reaches(range.begin, range.end)) continue;
    launched = noise.queue(launcher_, stream, advance(request.target, range.begin),
                           range.end - range.begin, i, payload.range_count == 1,
                           advance(request.scratch, 0), Workspace(turn.workspace));
  }
  // The sections next to the codes are restored once more, over the noise.
  tasks.codes.clear();
  return end_turn(turn, stream, launched && tasks.launch_decode(launcher_, stream));
}

// ---- sketch -------------------------------------------------------------------------------------

bool DeviceBlockCodec::sketch(std::span<const compress::cuda::SketchTask> tasks,
                              StreamId stream) noexcept {
  if (!usable_) return false;
  const DeviceContext context(driver_, life_, device_);
  if (!context) return false;
  std::size_t queued = 0;
  const bool launched =
      compress::cuda::sketch_on_device(launcher_, tasks, compress::StreamHandle{stream.value},
                                       &queued) == compress::LaunchStatus::kOk;
  if (!launched) life_.note(launcher_.driver_error());
  return launched;
}

}  // namespace pleat::bridge::cuda
