#include "torch_bridge/cuda/device_noise.h"

#include <algorithm>
#include <numeric>

#include "compress/sides/sides.h"
#include "torch_bridge/core/codec_adapter.h"

namespace pleat::bridge::cuda {
namespace {

using compress::LaunchStatus;
using compress::Look;
using compress::cuda::DeviceTask;
using compress::cuda::LineTask;
using compress::cuda::MixTask;

constexpr std::size_t kMostOfPiece = std::size_t{1} << 20;  // elements
constexpr std::size_t kGroup = 256;

constexpr std::size_t align_up(std::size_t bytes) noexcept { return (bytes + 63) / 64 * 64; }

template <class Task>
bool launch(LaunchStatus (*queue)(compress::KernelLauncher&, std::span<const Task>,
                                  compress::StreamHandle, std::size_t*) noexcept,
            compress::KernelLauncher& launcher, const Task& task,
            allocator::StreamId stream) noexcept {
  std::size_t queued = 0;
  return queue(launcher, {&task, 1}, compress::StreamHandle{stream.value}, &queued) ==
         LaunchStatus::kOk;
}

}  // namespace

DeviceNoise::DeviceNoise(const allocator::DisturbanceWords& words,
                         const allocator::PayloadView& payload) noexcept {
  const auto& [spec, how] = unpack_disturbance(words);
  spec_ = spec;
  spec_.bits = how.bits;
  nonce_ = how.nonce;
  code_.type = mix_.type = spec.type;
  code_.bits = mix_.bits = how.bits;
  mix_.amplitude = how.amplitude;
  mix_.widest_step = compress::block::widest_step(spec.steps);
  mix_.near_zero = spec.near_zero;
  mix_.beside = sides_beside_values(spec.sides, spec.type);
  code_.transform = spec.transform;
  code_.exponents = spec.codec().exponents;
  const DeviceForm form = DeviceForm::unpack(payload.form);
  if (payload.data != nullptr && form.kind == FormKind::kLossy) {
    code_.transform = form.transform;
    code_.zeros = form.zeros;
    code_.exponents = form.exponents();
    if (code_.exponents.channels != 0) {  // the only span's
      const SpanPlace span = place_span(form, payload.ranges[0].end - payload.ranges[0].begin, 0);
      code_.exponents.table = static_cast<const std::int8_t*>(payload.data) + span.table(form);
    }
  }
  mix_.transform = code_.transform;
  mix_.exponents = code_.exponents;
}

bool DeviceNoise::any() const noexcept {
  return mix_.amplitude != 0 &&
         plan_form(spec_, {}, 0, 0).kind() == compress::block::FormKind::kLossy;
}

bool DeviceNoise::reaches(std::size_t begin, std::size_t end) const noexcept {
  const std::size_t size = compress::element_size(spec_.type);
  return begin % size == 0 && end % size == 0 && device_can_encode(code((end - begin) / size));
}

// ---- pieces -------------------------------------------------------------------------------------

DeviceTask DeviceNoise::code(std::size_t elements) const noexcept {
  DeviceTask task = code_;
  task.elements = elements;
  return task;
}

// Whole groups, whole rows, and whole turns of the channels: each piece is coded and looked at on
// its own. Rows are the same lines so. A column is held against its steps in the piece.
std::size_t DeviceNoise::piece() const noexcept {
  const auto or_one = [](std::size_t n) { return std::max<std::size_t>(n, 1); };
  const compress::Exponents& exponents = code_.exponents;
  const std::size_t length = spec_.lines.look == Look::kNone ? 1 : or_one(spec_.lines.length);
  const std::size_t turn = or_one(std::size_t{exponents.channels} * exponents.inner);
  const std::size_t all = std::lcm(std::lcm(kGroup, length), turn);
  return all > kMostOfPiece ? all : kMostOfPiece / all * all;
}

bool DeviceNoise::has_lines(std::size_t elements) const noexcept {
  return spec_.lines.look > Look::kParts && has_lines_to_keep(elements, spec_.type, spec_.lines);
}

LineTask DeviceNoise::lines(std::size_t elements) const noexcept {
  LineTask task;
  task.elements = elements;
  task.type = spec_.type;
  task.bits = code_.bits;
  task.lines = spec_.lines;
  const std::size_t length = std::max<std::size_t>(spec_.lines.length, 1);
  task.most =
      static_cast<std::uint32_t>(spec_.lines.look == Look::kColumns ? length : elements / length);
  return task;
}

DeviceNoise::Place DeviceNoise::place(std::size_t elements) const noexcept {
  Place place;
  place.values = align_up(compress::cuda::device_payload_bound(code(elements)));
  place.section = place.of_lines = place.end =
      place.values + compress::cuda::mix_values_bytes(elements, spec_.type);
  if (has_lines(elements)) {
    const LineTask task = lines(elements);
    place.of_lines +=
        align_up(compress::cuda::line_section_bytes(task.lines, elements, task.type, task.most));
    place.end =
        place.of_lines + compress::cuda::line_scratch_bytes(task.lines, elements, task.type);
  }
  return place;
}

std::size_t DeviceNoise::scratch(std::size_t block_bytes) const noexcept {
  const std::size_t size = compress::element_size(spec_.type), all = block_bytes / size;
  if (all == 0) return 0;
  // Of a block of less than a piece, lines or not: a span may be any part of it.
  const std::size_t length = std::max<std::size_t>(spec_.lines.length, 1);
  const std::size_t most = std::min(all, piece());
  return std::max(place(most).end, place(most / length * length).end);
}

bool DeviceNoise::queue(compress::KernelLauncher& launcher, allocator::StreamId stream,
                        std::byte* span, std::size_t bytes, std::uint64_t number, bool only_one,
                        std::byte* scratch, Workspace workspace) const noexcept {
  const std::size_t size = compress::element_size(spec_.type), all = bytes / size;
  const std::size_t each = piece();
  // The codec numbers groups from the first of a piece. Of a first piece the noise is the host's.
  std::uint64_t nonce = nonce_ + number;
  for (std::size_t at = 0; at < all; at += each, nonce += std::uint64_t{1} << 32) {
    const std::size_t elements = std::min(all - at, each);
    if (!queue_piece(launcher, stream, span + at * size, elements, nonce,
                     only_one && has_lines(elements), scratch, workspace)) {
      return false;
    }
  }
  return true;
}

bool DeviceNoise::queue_piece(compress::KernelLauncher& launcher, allocator::StreamId stream,
                              std::byte* piece, std::size_t elements, std::uint64_t nonce,
                              bool with_lines, std::byte* scratch,
                              Workspace workspace) const noexcept {
  namespace device = compress::cuda;
  const Place at = place(elements);
  MixTask mix = mix_;
  mix.target = piece;
  mix.codes = scratch;
  mix.values = scratch + at.values;
  mix.elements = elements;
  mix.verdict = workspace.unread(0);
  mix.counters = workspace.counters(0);
  DeviceTask encode = code(elements);
  encode.source = piece;
  encode.target = scratch;
  encode.nonce = nonce;
  encode.verdict = mix.verdict;
  encode.counters = mix.counters;
  DeviceTask again = encode;
  again.source = mix.values;
  DeviceTask decode = encode;
  decode.source = scratch;
  decode.target = scratch + at.values + device::mix_values_bytes(elements, spec_.type) / 2;
  decode.capacity = device::device_payload_bound(encode);
  LineTask keep = lines(elements);
  keep.source = keep.target = piece;
  keep.codes = scratch;
  keep.section = scratch + at.section;
  keep.scratch = scratch + at.of_lines;
  keep.verdict = mix.verdict;
  keep.counters = mix.counters;
  return launch(&device::encode_on_device, launcher, encode, stream) &&
         (!with_lines || launch(&device::keep_lines_on_device, launcher, keep, stream)) &&
         launch(&device::spread_on_device, launcher, mix, stream) &&
         launch(&device::encode_on_device, launcher, again, stream) &&
         launch(&device::decode_on_device, launcher, decode, stream) &&
         launch(&device::mix_on_device, launcher, mix, stream) &&
         (!with_lines || launch(&device::restore_lines_on_device, launcher, keep, stream));
}

}  // namespace pleat::bridge::cuda
