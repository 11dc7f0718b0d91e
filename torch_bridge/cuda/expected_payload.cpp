#include "torch_bridge/cuda/expected_payload.h"

#include <algorithm>
#include <atomic>

#include "allocator/cuda/device_words.h"
#include "compress/device/jobs.h"

namespace pleat::bridge::cuda {
namespace {

using compress::block::Steps;
using compress::cuda::Outcome;
using compress::cuda::Verdict;

static_assert(sizeof(Verdict) <= allocator::cuda::DeviceWords::kSlotBytes);

const Verdict& verdict_in(const void* slot) noexcept { return *static_cast<const Verdict*>(slot); }

std::uint32_t kept(const std::vector<void*>& slots) noexcept {
  std::uint32_t all = 0;
  for (const void* const slot : slots) all += verdict_in(slot).kept;
  return all;
}

}  // namespace

bool ExpectedPayload::decided() const noexcept {
  bool all = true;
  each_slot([&](void* slot) {
    // The device writes a verdict's outcome last.
    static_assert(offsetof(Verdict, outcome) == 0);
    const std::atomic_ref<std::uint32_t> word(*static_cast<std::uint32_t*>(slot));
    all = all && static_cast<Outcome>(word.load(std::memory_order_acquire)) != Outcome::kPending;
  });
  return all;
}

ExpectedPayload::Found ExpectedPayload::found() const noexcept {
  Found found;
  for (std::size_t i = 0; i < codes.size(); ++i) {
    const Verdict& v = verdict_in(codes[i]);
    found.done = found.done && v.outcome == Outcome::kDone;
    found.too_wide += v.too_wide;
    found.leaving += v.leaving;
    found.widest = std::max(found.widest, v.widest);
    if (v.outcome == Outcome::kKeepRaw) {
      found.needed_bytes = std::max(found.needed_bytes, v.payload_bytes);
    }
    const SpanPlace& span = spans[i];
    const std::size_t source = span.elements * compress::element_size(form.type);
    const std::size_t taken = span.codes - span.scratch + v.payload_bytes;
    found.frames = std::max(found.frames, static_cast<double>(taken) / static_cast<double>(source));
  }
  found.lines = kept(lines);
  found.near_zero = kept(near_zero);
  return found;
}

bool ExpectedPayload::is_good(const Found& found) const noexcept {
  const bool without_sides = is_lossy() && form.side_bits == 0;
  return found.done && found.too_wide == 0 && !(without_sides && found.leaving != 0) &&
         found.lines <= form.most_lines && found.near_zero <= form.most_near_zero;
}

void ExpectedPayload::teach(KeyLesson& lesson, const Found& found) const noexcept {
  if (is_lossy()) {
    if (spec.sides.any()) {
      lesson.ever_left = lesson.ever_left || found.leaving != 0;
      lesson.quiet = found.leaving != 0 ? 0 : lesson.quiet + 1;
    }
    KeyLesson::note_share(lesson.lines, found.lines, elements);
    KeyLesson::note_share(lesson.near_zero, found.near_zero, elements);
    teach_widths(lesson, found);
  }
  const bool good = is_good(found);
  lesson.note_outcome(good);
  if (good) lesson.refusals = 0;
  if (!is_lossy() && compress::is_floating(form.type)) {
    teach_exact_floats(lesson, found);
  } else if (!found.done) {
    if (const std::uint8_t width = width_for(found.needed_bytes)) {
      lesson.width = width;
    } else {
      lesson.refuse();
    }
  }
}

void ExpectedPayload::teach_exact_floats(KeyLesson& lesson, const Found& found) const noexcept {
  if (form.is_framed()) {
    lesson.note_frames(found.done, found.frames);
    const bool tries_groups =
        lesson.frames_before_groups != 0 && --lesson.frames_before_groups == 0;
    lesson.in_groups = tries_groups || found.frames > KeyLesson::kMostOfFrames;
  } else if (found.done) {
    lesson.frames_before_groups = KeyLesson::kFramesAgain;
  } else {
    lesson.in_groups = false;
    if (lesson.frames > KeyLesson::kMostOfFrames) lesson.refuse();
  }
}

// A step close to the limit will be beyond it one day.
void ExpectedPayload::teach_widths(KeyLesson& lesson, const Found& found) const noexcept {
  const float close = 0.8f * compress::block::widest_step(spec.steps);
  if (spec.steps == Steps::kAny) return;
  const auto step_at = [&](unsigned bits) {
    return found.widest * static_cast<float>((1u << form.bits) - 1) /
           static_cast<float>((1u << bits) - 1);
  };
  if (found.widest <= close) {
    const std::uint8_t fewer = lesson.least_bits == 8 ? 4 : 2;
    const bool is_narrow = lesson.least_bits > fewer && step_at(fewer) <= close / 2;
    lesson.narrow = is_narrow ? lesson.narrow + 1 : 0;
    if (lesson.narrow == KeyLesson::kNarrow) {
      lesson.least_bits = fewer;
      lesson.narrow = 0;
    }
    return;
  }
  lesson.narrow = 0;
  if (form.bits < 4 && step_at(4) < close) {
    lesson.least_bits = 4;
  } else if (form.bits < 8 && step_at(8) < close) {
    lesson.least_bits = 8;
  } else if (found.too_wide != 0) {
    lesson.least_bits = 8;
    lesson.refuse();
  }
}

// Of integers that so many bytes hold; 0: no width does, or nobody knows.
std::uint8_t ExpectedPayload::width_for(std::uint64_t bytes) const noexcept {
  if (form.kind != FormKind::kIntegers || bytes == 0 || spans.size() != 1) return 0;
  DeviceForm wider = form;
  for (unsigned width = form.width * 2u; width <= 32; width *= 2) {
    wider.width = static_cast<std::uint8_t>(width);
    if (compress::cuda::device_payload_bytes(wider.codes_task(elements)) >= bytes) {
      return wider.width;
    }
  }
  return 0;
}

std::size_t ExpectedPayload::bytes() const noexcept {
  return spans.size() == 1 && codes.size() == 1
             ? spans.front().codes + verdict_in(codes.front()).payload_bytes
             : room;
}

}  // namespace pleat::bridge::cuda
