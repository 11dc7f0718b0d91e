#include "torch_bridge/cuda/device_block_codec.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <optional>
#include <thread>
#include <utility>

#include "compress/codec.h"
#include "compress/cuda/device_asides.h"
#include "compress/cuda/device_codec.h"
#include "compress/format.h"
#include "compress/side_bounds.h"
#include "compress/sides.h"

namespace pleat::bridge::cuda {
namespace {

using allocator::CodecStatus;
using allocator::EncodeRequest;
using allocator::PayloadView;
using allocator::StreamId;
using allocator::cuda::DeviceContext;
using allocator::cuda::DeviceWords;
using compress::ElementType;
using compress::LaunchStatus;
using compress::Look;
using compress::Sides;
using compress::Transform;
using compress::block::BlockSpec;
using compress::block::Kept;
using compress::block::Steps;
using compress::cuda::Counters;
using compress::cuda::DeviceTask;
using compress::cuda::kMostJobs;
using compress::cuda::LineTask;
using compress::cuda::NearZeroTask;
using compress::cuda::Outcome;
using compress::cuda::Verdict;

static_assert(sizeof(Verdict) <= DeviceWords::kSlotBytes);

// A stream's workspace: counters for the jobs of a launch, and words for verdicts nobody reads.
constexpr std::size_t kUnreadVerdicts = kMostJobs * sizeof(Counters);
static_assert(kUnreadVerdicts + kMostJobs * sizeof(Verdict) <= DeviceWords::kWorkspaceBytes);

template <class T>
T* at_address(std::uint64_t address) noexcept {
  return reinterpret_cast<T*>(address);
}
std::byte* advance(const void* from, std::size_t bytes) noexcept {
  return const_cast<std::byte*>(static_cast<const std::byte*>(from)) + bytes;
}

// The device writes a verdict's outcome last.
Outcome outcome_of(const void* slot) noexcept {
  auto& word = *static_cast<std::uint32_t*>(const_cast<void*>(slot));
  static_assert(offsetof(Verdict, outcome) == 0);
  return static_cast<Outcome>(std::atomic_ref<std::uint32_t>(word).load(std::memory_order_acquire));
}
const Verdict& verdict_in(const void* slot) noexcept { return *static_cast<const Verdict*>(slot); }

bool is_integer(ElementType type) noexcept {
  return type == ElementType::kInt64 || type == ElementType::kInt32;
}

// Bytes that a payload may take to be worth having.
std::size_t most_worth(std::size_t source_bytes) noexcept {
  return source_bytes - source_bytes / 16;
}

constexpr std::uint32_t kFew = 4;

// Of `elements` elements, if such a share was seen: a quarter more, and a few.
std::uint32_t predicted(double share, std::uint64_t elements, std::uint32_t few = kFew) noexcept {
  const double expected = share * static_cast<double>(elements) * 1.25 + few;
  return static_cast<std::uint32_t>(std::min(expected, static_cast<double>(elements)));
}

// Of the lines of so many elements. Zeros need no bytes.
std::uint32_t predicted_lines(const KeyLesson& lesson, compress::Lines lines,
                              std::uint64_t elements) noexcept {
  if (lines.look == Look::kZeroRows) return 0;
  const std::uint64_t all = lines.look == Look::kColumns ? lines.length : elements / lines.length;
  const auto few = static_cast<std::uint32_t>(std::min<std::uint64_t>(kFew, 1 + all / 64));
  return std::min(predicted(lesson.lines, elements, few), static_cast<std::uint32_t>(all));
}

}  // namespace

// ---- what is planned, launched and expected -----------------------------------------------------

struct DeviceBlockCodec::Details final : allocator::EncodePlan::Details {
  BlockSpec spec;  // what is asked, at the width that is used
  DeviceForm form;
  Sides beside{};  // closed: as they stand beside values, or would have to
  bool gated = false;
  bool any_byte = false;
  bool judged = false;  // the device is to say more than that it is done
  std::size_t payload_bytes = 0;
};

// A payload whose verdicts are to come.
struct DeviceBlockCodec::Expected {
  allocator::TensorKey key;
  allocator::CodecWords choice;
  BlockSpec spec;
  DeviceForm form;
  bool gated = false;
  StreamId stream;
  std::uint64_t elements = 0;
  std::size_t source_bytes = 0, room = 0;
  std::size_t codes_at = 0;       // of the only span; with several the room stays what it is
  std::size_t only_elements = 0;  // of the only span, else 0
  std::vector<void*> codes, lines, near_zero;  // slots
  std::optional<bool> good;                    // once it is judged

  template <class Body>
  void each_slot(Body&& body) const {
    for (const auto* slots : {&codes, &lines, &near_zero}) {
      for (void* const slot : *slots) body(slot);
    }
  }
  [[nodiscard]] bool decided() const noexcept {
    bool all = true;
    each_slot([&](const void* slot) { all = all && outcome_of(slot) != Outcome::kPending; });
    return all;
  }
};

struct DeviceBlockCodec::Tasks {
  std::vector<DeviceTask> codes, sides;
  std::vector<LineTask> lines;
  std::vector<NearZeroTask> near_zero;
};

DeviceBlockCodec::DeviceBlockCodec(compress::KernelLauncher& launcher,
                                   const allocator::cuda::Driver& driver,
                                   allocator::cuda::DriverLife& life, int device) noexcept
    : launcher_(launcher), driver_(driver), life_(life), device_(device) {}

DeviceBlockCodec::~DeviceBlockCodec() = default;

// ---- the device is made ready -------------------------------------------------------------------

DeviceCodec::Opened DeviceBlockCodec::open(StreamId stream, std::string& why) noexcept {
  const DeviceContext context(driver_, life_, device_);
  if (!context) return Opened::kNotYet;
  if (compress::cuda::device_image().bytes == 0) {
    why = "this build of Pleat has no kernels for CUDA";
    return Opened::kNever;
  }
  switch (launcher_.prepare(compress::cuda::device_image())) {
    case LaunchStatus::kOk:
      break;
    case LaunchStatus::kNoImage:
      why = "Pleat has no kernels that this device can run";
      return Opened::kNever;
    default:
      why = "the driver refuses Pleat's kernels with error " +
            std::to_string(launcher_.driver_error());
      return Opened::kNever;
  }
  if (const int error = words_.open(driver_, life_, stream); error != allocator::cuda::kSuccess) {
    why = "the driver gives no memory for Pleat's words, error " + std::to_string(error);
    return Opened::kNever;
  }
  usable_ = self_test(stream, why);
  return usable_ ? Opened::kYes : Opened::kNever;
}

// A block of known values, in pinned memory, becomes the payload that the CPU makes of it, and
// back.
bool DeviceBlockCodec::self_test(StreamId stream, std::string& why) noexcept {
  constexpr std::size_t kElements = 700;  // the last group is a short one
  constexpr std::uint64_t kNonce = 0x5EED;
  static_assert(DeviceWords::kSlotBytes == 64);
  alignas(64) std::array<float, kElements> values;
  for (std::size_t i = 0; i < kElements; ++i) {
    values[i] = static_cast<float>(static_cast<int>(i * 2654435761u % 2001) - 1000) / 250.0f;
  }
  DeviceTask task;
  task.elements = kElements;
  task.type = ElementType::kFloat32;
  task.bits = 4;
  task.nonce = kNonce;
  const std::size_t payload_bytes = compress::cuda::device_payload_bytes(task);
  alignas(64) std::array<std::byte, 4096> payload{};
  alignas(64) std::array<float, kElements> restored;
  const compress::EncodeResult coded = compress::encode(
      {values.data(), kElements, ElementType::kFloat32}, {.bits = 4, .compact = false}, kNonce,
      payload.data(), payload.size(), compress::serial_executor(), nullptr);
  if (coded.status != compress::Status::kOk || coded.payload_bytes != payload_bytes ||
      compress::decode(payload.data(), payload_bytes, restored.data(), sizeof restored,
                       compress::serial_executor()) != compress::Status::kOk) {
    why = "Pleat's own self-test of its CPU code failed";
    return false;
  }
  const DeviceWords::Slot run = words_.whole();  // of which nobody has a slot yet
  // source | payload | target | two verdicts
  const std::size_t at_payload = (sizeof values + 63) / 64 * 64;
  const std::size_t at_target = at_payload + payload.size();
  const std::size_t at_verdicts = at_target + (sizeof values + 63) / 64 * 64;
  static_assert(2 * sizeof values + payload.size() + 4 * 64 <
                DeviceWords::kSlots * DeviceWords::kSlotBytes);
  auto* const host = static_cast<std::byte*>(run.host);
  std::memcpy(host, values.data(), sizeof values);
  const std::uint64_t workspace = words_.workspace(stream);
  task.counters = at_address<Counters>(workspace);
  task.source = at_address<void>(run.device);
  task.target = at_address<void>(run.device + at_payload);
  task.capacity = payload_bytes;
  task.verdict = at_address<Verdict>(run.device + at_verdicts);
  std::size_t queued = 0;
  const compress::StreamHandle handle{stream.value};
  bool done =
      compress::cuda::encode_on_device(launcher_, {&task, 1}, handle, &queued) == LaunchStatus::kOk;
  task.source = at_address<void>(run.device + at_payload);
  task.target = at_address<void>(run.device + at_target);
  task.verdict = at_address<Verdict>(run.device + at_verdicts + 64);
  done = done && compress::cuda::decode_on_device(launcher_, {&task, 1}, handle, &queued) ==
                     LaunchStatus::kOk;
  const int error = life_.note(driver_.stream_synchronize(at_address<void>(stream.value)));
  if (!done || error != allocator::cuda::kSuccess) {
    why = "the self-test's kernels fail with error " +
          std::to_string(error != allocator::cuda::kSuccess ? error : launcher_.driver_error());
  } else if (outcome_of(host + at_verdicts) != Outcome::kDone ||
             outcome_of(host + at_verdicts + 64) != Outcome::kDone ||
             std::memcmp(host + at_payload, payload.data(), payload_bytes) != 0 ||
             std::memcmp(host + at_target, restored.data(), sizeof restored) != 0) {
    why = "the self-test's block comes back other than the CPU codes it";
    done = false;
  }
  return done && error == allocator::cuda::kSuccess;
}

// ---- plan ---------------------------------------------------------------------------------------

void DeviceBlockCodec::count_hold(DeviceHold why, std::size_t bytes) noexcept {
  counts_.holds.add(why, bytes);
  counts_.totals.add_kept_raw(bytes);
}

allocator::EncodePlan DeviceBlockCodec::plan(const EncodeRequest& request) noexcept {
  take_late_verdicts();
  if (lessons_.expects(request.key)) settle(request.key);
  const auto hold = [&](DeviceHold why) -> allocator::EncodePlan {
    count_hold(why, request.source_bytes);
    return {};
  };
  if (!usable_) return hold(DeviceHold::kNoDevice);
  const KeyLessons::Answer answer = lessons_.ask(request.key, request.choice);
  if (answer.pauses) return hold(DeviceHold::kNotYet);
  const KeyLesson& lesson = answer.lesson;
  std::size_t elements = 0;
  std::unique_ptr<Details> details;
  try {
    details = std::make_unique<Details>();
  } catch (...) {
    return hold(DeviceHold::kNoForm);
  }
  Details& d = *details;
  d.spec = BlockSpec::unpack(request.choice.words);
  DeviceForm& form = d.form;
  form.type = d.spec.type;
  for (std::size_t i = 0; i < request.range_count; ++i) {
    elements +=
        (request.ranges[i].end - request.ranges[i].begin) / compress::element_size(form.type);
  }
  const bool floats = compress::is_floating(form.type);
  // Sides that the type cannot keep: the values come back as they are.
  if (d.spec.kept == Kept::kSides && !compress::sides_hold(d.spec.sides, form.type)) {
    d.spec = compress::block::lossless(form.type);
  }
  const bool lossy = d.spec.kept == Kept::kValues && floats && d.spec.bits != 0;
  if (lossy && d.spec.sides.any()) {
    if (!compress::sides_hold(d.spec.sides, form.type)) return hold(DeviceHold::kNoForm);
    d.beside = compress::sides_beside_values(d.spec.sides, form.type);
  }
  if (d.spec.kept == Kept::kNothing) {
    form.kind = DeviceKind::kNothing;
  } else if (d.spec.kept == Kept::kSides) {
    form.kind = DeviceKind::kSides;
    form.side_bits = d.spec.sides.kind == Sides::Kind::kThree ? 2 : 1;
  } else if (lossy) {
    form.kind = DeviceKind::kFloats;
    d.spec.bits = std::max(d.spec.bits, lesson.least_bits);
    form.bits = static_cast<std::uint8_t>(compress::supported_bits(d.spec.bits));
    form.transform = d.spec.transform;
    if (d.beside.any()) {
      // What a rotation moves may be carried across any bound.
      const bool stand = lesson.keeps_sides() || form.transform != Transform::kNone;
      form.side_bits = stand ? (d.beside.kind == Sides::Kind::kThree ? 2 : 1) : 0;
    }
    if (d.spec.lines.look != Look::kNone && request.range_count == 1 &&
        compress::cuda::has_lines_to_keep(elements, form.type, d.spec.lines)) {
      form.look = d.spec.lines.look;
      form.line_length = d.spec.lines.length;
      form.most_lines = predicted_lines(lesson, form.lines(), elements);
    }
    if (d.spec.near_zero) {
      form.most_near_zero = predicted(lesson.near_zero, elements);
    }
    const bool looks = d.spec.steps != Steps::kAny || form.has_lines() || form.most_near_zero != 0;
    d.judged = looks || d.beside.any();
    // More flat lines than there is room for would be lost.
    const bool may_lose_lines = form.has_lines() && form.look != Look::kZeroRows;
    d.gated = !compress::has_wide_groups(form.bits) || may_lose_lines || (looks && !lesson.sure());
  } else if (floats) {
    form.kind = DeviceKind::kFloats;  // masks have a short form
    d.gated = true;
  } else if (form.type == ElementType::kBool) {
    form.kind = DeviceKind::kBooleans;
    d.gated = !lesson.sure();
    d.any_byte = lesson.sure();
  } else if (is_integer(form.type)) {
    form.kind = DeviceKind::kIntegers;
    form.width = lesson.width;
    d.gated = true;
  } else {
    return hold(DeviceHold::kNoForm);
  }
  d.judged = d.judged || d.gated;
  allocator::EncodePlan plan;
  d.payload_bytes = payload_room(form, request.ranges, request.range_count);
  if (d.payload_bytes == 0 || d.payload_bytes > most_worth(request.source_bytes)) {
    return hold(DeviceHold::kNoForm);
  }
  plan.room = d.payload_bytes;
  if (form.has_lines()) {
    plan.scratch = compress::cuda::line_scratch_bytes(form.lines(), elements, form.type);
  }
  plan.details = std::move(details);
  return plan;
}

// ---- encode -------------------------------------------------------------------------------------

// All launches of a payload, codes first: what else is kept is judged by them.
bool DeviceBlockCodec::launch_encode(Tasks& tasks, StreamId stream) noexcept {
  const compress::StreamHandle handle{stream.value};
  std::size_t queued = 0;
  const auto ok = [](LaunchStatus status) { return status == LaunchStatus::kOk; };
  return ok(compress::cuda::encode_on_device(launcher_, tasks.codes, handle, &queued)) &&
         (tasks.sides.empty() ||
          ok(compress::cuda::encode_on_device(launcher_, tasks.sides, handle, &queued))) &&
         (tasks.near_zero.empty() || ok(compress::cuda::keep_near_zero_on_device(
                                         launcher_, tasks.near_zero, handle, &queued))) &&
         (tasks.lines.empty() ||
          ok(compress::cuda::keep_lines_on_device(launcher_, tasks.lines, handle, &queued)));
}

allocator::EncodeResult DeviceBlockCodec::encode(const EncodeRequest& request,
                                                 const allocator::EncodePlan& plan, void* payload,
                                                 std::size_t /*capacity*/) noexcept {
  const auto& d = static_cast<const Details&>(*plan.details);
  const DeviceForm& form = d.form;
  const auto refused = [&](DeviceHold why) -> allocator::EncodeResult {
    count_hold(why, request.source_bytes);
    return {};
  };
  std::unique_ptr<Expected> expected;
  Tasks tasks;
  try {
    expected = std::make_unique<Expected>();
    const std::size_t spans = form.kind == DeviceKind::kNothing ? 0 : request.range_count;
    tasks.codes.reserve(spans);
    if (form.side_bits != 0) tasks.sides.reserve(spans);
    if (form.has_lines()) tasks.lines.reserve(spans);
    if (form.most_near_zero != 0) tasks.near_zero.reserve(spans);
    if (d.judged) expected->codes.reserve(spans);
    expected->lines.reserve(tasks.lines.capacity());
    expected->near_zero.reserve(tasks.near_zero.capacity());
  } catch (...) {
    return refused(DeviceHold::kNoWords);
  }
  Expected& e = *expected;
  e.key = request.key;
  e.choice = request.choice;
  e.spec = d.spec;
  e.form = form;
  e.gated = d.gated;
  e.stream = request.stream;
  e.source_bytes = request.source_bytes;
  e.room = d.payload_bytes;
  allocator::EncodeResult result{CodecStatus::kOk, d.payload_bytes, form.pack(), {}, {}};
  if (form.kind == DeviceKind::kNothing) {
    e.elements = request.source_bytes;
    count(e, d.payload_bytes);
    return result;
  }
  const DeviceContext context(driver_, life_, device_);
  const std::uint64_t workspace = context ? words_.workspace(request.stream) : 0;
  if (workspace == 0) return refused(DeviceHold::kNoDevice);
  bool short_of_words = false;
  // The word for the verdict of the next task; nobody reads those of tasks that are not judged.
  const auto verdict = [&](std::vector<void*>* slots, std::size_t task) -> Verdict* {
    if (slots == nullptr) {
      return at_address<Verdict>(workspace + kUnreadVerdicts + task % kMostJobs * sizeof(Verdict));
    }
    const DeviceWords::Slot slot = words_.take_slot();
    if (!slot) {
      short_of_words = true;
      return nullptr;
    }
    slots->push_back(slot.host);
    return at_address<Verdict>(slot.device);
  };
  const auto counters = [&](std::size_t task) {
    return at_address<Counters>(workspace + task % kMostJobs * sizeof(Counters));
  };
  std::size_t end = 0;
  for (std::size_t i = 0; i < request.range_count; ++i) {
    const allocator::ByteRange& range = request.ranges[i];
    const SpanPlace place = place_span(form, range.end - range.begin, end);
    end = place.end();
    e.elements += place.elements;
    e.codes_at = place.codes;
    const void* const source = advance(request.source, range.begin);
    DeviceTask task = form.codes_task(place.elements);
    task.source = source;
    task.target = advance(payload, place.codes);
    task.nonce = request.nonce + i;
    task.capacity = place.codes_room;
    task.verdict = verdict(d.judged ? &e.codes : nullptr, i);
    task.counters = counters(i);
    if (form.kind == DeviceKind::kSides) task.sides = d.spec.sides;
    if (form.kind == DeviceKind::kFloats && form.bits != 0) {
      task.widest_step = compress::block::widest_step(d.spec.steps);
      task.beside = d.beside;
    }
    task.any_byte = d.any_byte;
    tasks.codes.push_back(task);
    if (form.kind == DeviceKind::kFloats && form.side_bits != 0) {
      DeviceTask sides = form.sides_task(place.elements);
      sides.source = source;
      sides.target = advance(payload, place.sides);
      sides.nonce = task.nonce;
      sides.sides = d.beside;
      sides.verdict = verdict(nullptr, i);
      sides.counters = counters(i);
      tasks.sides.push_back(sides);
    }
    if (form.most_near_zero != 0) {
      NearZeroTask near{};
      near.source = source;
      near.section = advance(payload, place.near_zero);
      near.elements = place.elements;
      near.type = form.type;
      near.most = form.most_near_zero;
      near.verdict = verdict(&e.near_zero, i);
      near.counters = counters(i);
      tasks.near_zero.push_back(near);
    }
    if (form.has_lines()) {
      LineTask lines{};
      lines.source = source;
      lines.codes = task.target;
      lines.section = advance(payload, place.lines);
      lines.elements = place.elements;
      lines.type = form.type;
      lines.bits = form.bits;
      lines.transform = form.transform;
      lines.lines = form.lines();
      lines.most = form.most_lines;
      lines.codes_bytes = place.codes_room;
      lines.scratch = request.scratch;
      lines.verdict = verdict(&e.lines, i);
      lines.counters = counters(i);
      tasks.lines.push_back(lines);
    }
  }
  e.only_elements = request.range_count == 1 ? e.elements : 0;
  if (short_of_words) {
    e.each_slot([this](void* slot) { words_.give_slot(slot); });
    return refused(DeviceHold::kNoWords);
  }
  if (!launch_encode(tasks, request.stream)) {
    // Nobody knows which of them the device will do: their words stay taken.
    life_.note(launcher_.driver_error());
    return refused(DeviceHold::kNoDevice);
  }
  if (!d.gated) count(e, d.payload_bytes);
  if (!d.judged) return result;
  lessons_.expect(request.key);
  const std::lock_guard<std::mutex> guard(mutex_);
  try {
    if (d.gated) {
      result.status = CodecStatus::kQueued;
      result.ticket = {++last_ticket_};
      asked_.emplace(result.ticket.value, std::move(expected));
    } else {
      unasked_.push_back(std::move(expected));
    }
  } catch (...) {
    // Of what is gated nothing is known then: it is held, and its words stay taken.
    if (d.gated) return {};
  }
  return result;
}

allocator::EncodeResult DeviceBlockCodec::encode_in_place(
    const EncodeRequest& /*request*/, const allocator::EncodePlan& /*plan*/) noexcept {
  return {};
}

// ---- verdicts -----------------------------------------------------------------------------------

// Whether the payload is what was asked for; teaches the key.
bool DeviceBlockCodec::judge(Expected& e) noexcept {
  if (e.good.has_value()) return *e.good;
  bool done = true;
  std::uint32_t too_wide = 0, leaving = 0;
  float widest = 0;
  std::uint64_t bytes = 0;  // that would have held what did not fit
  for (const void* const slot : e.codes) {
    const Verdict& v = verdict_in(slot);
    done = done && v.outcome == Outcome::kDone;
    bytes = std::max(bytes, v.outcome == Outcome::kKeepRaw ? v.payload_bytes : 0);
    too_wide += v.too_wide;
    leaving += v.leaving;
    widest = std::max(widest, v.widest);
  }
  const auto sum = [](const std::vector<void*>& slots) {
    std::uint32_t all = 0;
    for (const void* const slot : slots) all += verdict_in(slot).kept;
    return all;
  };
  const std::uint32_t lines = sum(e.lines), near_zero = sum(e.near_zero);
  const bool floats = e.form.kind == DeviceKind::kFloats && e.form.bits != 0;
  const bool without_sides = floats && e.form.side_bits == 0;
  const float limit = compress::block::widest_step(e.spec.steps);
  const bool good = done && too_wide == 0 && !(without_sides && leaving != 0) &&
                    lines <= e.form.most_lines && near_zero <= e.form.most_near_zero;
  lessons_.learn(e.key, e.choice, [&](KeyLesson& lesson) {
    if (floats) {
      if (e.spec.sides.any()) {
        lesson.ever_left = lesson.ever_left || leaving != 0;
        ++lesson.quiet;
      }
      KeyLesson::note_share(lesson.lines, lines, e.elements);
      KeyLesson::note_share(lesson.near_zero, near_zero, e.elements);
      // A step close to the limit will be beyond it one day.
      if (widest > 0.8f * limit && e.spec.steps != Steps::kAny) {
        const auto step_at = [&](unsigned bits) {
          return widest * static_cast<float>((1u << e.form.bits) - 1) /
                 static_cast<float>((1u << bits) - 1);
        };
        if (e.form.bits < 4 && step_at(4) < 0.8f * limit) {
          lesson.least_bits = 4;
        } else if (e.form.bits < 8 && step_at(8) < 0.8f * limit) {
          lesson.least_bits = 8;
        } else if (too_wide != 0) {
          lesson.least_bits = 8;
          lesson.refuse();
        }
      }
    }
    lesson.note_outcome(good);
    if (good) {
      lesson.refusals = 0;
    } else if (!done) {
      if (e.form.kind == DeviceKind::kIntegers && bytes != 0 && e.only_elements != 0) {
        for (unsigned width = e.form.width * 2u; width <= 32; width *= 2) {
          DeviceForm wider = e.form;
          wider.width = static_cast<std::uint8_t>(width);
          if (compress::cuda::device_payload_bytes(wider.codes_task(e.only_elements)) >= bytes) {
            lesson.width = wider.width;
            return;
          }
        }
      }
      lesson.refuse();
    }
  });
  e.good = good;
  return good;
}

// Learns what the payloads of a key that are queued come to.
void DeviceBlockCodec::settle(allocator::TensorKey key) noexcept {
  for (bool waited = false;; waited = true) {
    std::optional<StreamId> late;
    {
      const std::lock_guard<std::mutex> guard(mutex_);
      const auto look = [&](Expected& e) {
        if (e.key != key || e.good.has_value()) return;
        if (e.decided()) {
          if (!judge(e) && !e.gated) counts_.surprises.fetch_add(1, std::memory_order_relaxed);
        } else {
          late = e.stream;
        }
      };
      for (const auto& [ticket, expected] : asked_) look(*expected);
      for (const auto& expected : unasked_) look(*expected);
    }
    if (!late.has_value() || waited) return;
    await(*late, [&] {
      const std::lock_guard<std::mutex> guard(mutex_);
      const auto open = [&](const Expected& e) {
        return e.key == key && !e.good.has_value() && !e.decided();
      };
      for (const auto& [ticket, expected] : asked_) {
        if (open(*expected)) return false;
      }
      return std::none_of(unasked_.begin(), unasked_.end(),
                          [&](const auto& expected) { return open(*expected); });
    });
  }
}

// Waits until `decided()`, not for what the stream was given later: the device goes on with that.
// Ends too once the stream has nothing left to do, or the device has failed.
template <class Decided>
void DeviceBlockCodec::await(StreamId stream, Decided&& decided) noexcept {
  constexpr std::chrono::microseconds kBetweenLooks{20};
  const DeviceContext context(driver_, life_, device_);
  while (context && !decided() &&
         life_.note(driver_.stream_query(at_address<void>(stream.value))) ==
             allocator::cuda::kNotReady) {
    std::this_thread::sleep_for(kBetweenLooks);
  }
}

// What the payload takes, now that it is known.
std::size_t DeviceBlockCodec::bytes_of(const Expected& e) const noexcept {
  return e.only_elements != 0 && e.codes.size() == 1
             ? e.codes_at + verdict_in(e.codes.front()).payload_bytes
             : e.room;
}

void DeviceBlockCodec::finish(Expected& e) noexcept {
  e.each_slot([this](void* slot) { words_.give_slot(slot); });
}

void DeviceBlockCodec::take_late_verdicts() noexcept {
  for (;;) {
    std::unique_ptr<Expected> first;
    {
      const std::lock_guard<std::mutex> guard(mutex_);
      if (unasked_.empty() || !unasked_.front()->decided()) return;
      first = std::move(unasked_.front());
      unasked_.pop_front();
    }
    if (!first->good.has_value() && !judge(*first) && !first->gated)
      counts_.surprises.fetch_add(1, std::memory_order_relaxed);
    finish(*first);
  }
}

bool DeviceBlockCodec::is_decided(allocator::EncodeTicket ticket) noexcept {
  const std::lock_guard<std::mutex> guard(mutex_);
  const auto at = asked_.find(ticket.value);
  return at == asked_.end() || at->second->decided();
}

allocator::EncodeResult DeviceBlockCodec::verdict(allocator::EncodeTicket ticket,
                                                  bool wait) noexcept {
  const auto decided = [&](StreamId* stream) -> std::optional<bool> {
    const std::lock_guard<std::mutex> guard(mutex_);
    const auto at = asked_.find(ticket.value);
    if (at == asked_.end()) return std::nullopt;
    *stream = at->second->stream;
    return at->second->decided();
  };
  StreamId stream;
  std::optional<bool> known = decided(&stream);
  if (known.has_value() && !*known && wait) {
    await(stream, [&] { return decided(&stream).value_or(true); });
    known = decided(&stream);
    if (known.has_value() && !*known) {  // the device has failed, or is gone: no verdict will come
      forget(ticket);
      return {};
    }
  }
  if (!known.has_value()) return {};
  if (!*known) return {.status = CodecStatus::kQueued};
  std::unique_ptr<Expected> expected;
  {
    const std::lock_guard<std::mutex> guard(mutex_);
    const auto at = asked_.find(ticket.value);
    if (at == asked_.end()) return {};
    expected = std::move(at->second);
    asked_.erase(at);
  }
  allocator::EncodeResult result;
  if (judge(*expected)) {
    const std::size_t bytes = bytes_of(*expected);
    count(*expected, bytes);
    result = {CodecStatus::kOk, bytes, expected->form.pack(), {}, {}};
  } else {
    count_hold(DeviceHold::kRefused, expected->source_bytes);
  }
  finish(*expected);
  return result;
}

bool DeviceBlockCodec::is_lossy(allocator::EncodeTicket ticket) noexcept {
  const std::lock_guard<std::mutex> guard(mutex_);
  const auto at = asked_.find(ticket.value);
  return at != asked_.end() && at->second->form.kind == DeviceKind::kFloats &&
         compress::has_wide_groups(at->second->form.bits);
}

void DeviceBlockCodec::forget(allocator::EncodeTicket ticket) noexcept {
  const std::lock_guard<std::mutex> guard(mutex_);
  const auto at = asked_.find(ticket.value);
  if (at == asked_.end()) return;
  try {
    unasked_.push_back(std::move(at->second));  // its words are the device's until it is done
  } catch (...) {
  }
  asked_.erase(at);
}

void DeviceBlockCodec::count(const Expected& e, std::size_t payload_bytes) noexcept {
  compress::SpanStatistics seen;
  if (e.form.kind == DeviceKind::kFloats) {
    seen.groups = (e.elements + 255) / 256;
    if (e.form.bits == 0) seen.two_valued_groups = seen.groups;
  }
  counts_.totals.add(e.spec, e.elements, payload_bytes, seen);
}

// ---- decode -------------------------------------------------------------------------------------

CodecStatus DeviceBlockCodec::decode(const PayloadView& payload, void* target,
                                     std::size_t target_bytes, StreamId stream) noexcept {
  const DeviceForm form = DeviceForm::unpack(payload.form);
  const DeviceContext context(driver_, life_, device_);
  if (!context) return CodecStatus::kFailed;
  std::size_t covered = 0;
  if (form.kind != DeviceKind::kNothing) {
    for (std::size_t i = 0; i < payload.range_count; ++i) {
      covered += payload.ranges[i].end - payload.ranges[i].begin;
    }
  }
  if (covered != target_bytes &&
      life_.note(driver_.set_bytes(reinterpret_cast<std::uint64_t>(target), 0, target_bytes,
                                   at_address<void>(stream.value))) != allocator::cuda::kSuccess) {
    return CodecStatus::kFailed;
  }
  if (form.kind == DeviceKind::kNothing) return CodecStatus::kOk;
  int captured = 0;
  const bool known = life_.note(driver_.stream_capturing(at_address<void>(stream.value),
                                                         &captured)) == allocator::cuda::kSuccess;
  std::uint64_t workspace =
      known && captured != 0 ? words_.workspace_of_a_graph() : words_.workspace(stream);
  // A block that was coded must come back on any stream. Those that have no workspace take turns,
  // and each waits for its own to end.
  std::unique_lock<std::mutex> turn;
  if (workspace == 0) [[unlikely]] {
    if (!known) return CodecStatus::kFailed;
    turn = std::unique_lock<std::mutex>(last_workspace_mutex_);
    workspace = words_.last_workspace();
    if (workspace == 0) return CodecStatus::kFailed;
  }
  Tasks tasks;
  try {
    tasks.codes.reserve(payload.range_count);
    if (form.side_bits != 0) tasks.sides.reserve(payload.range_count);
    if (form.has_lines()) tasks.lines.reserve(payload.range_count);
    if (form.most_near_zero != 0) tasks.near_zero.reserve(payload.range_count);
  } catch (...) {
    return CodecStatus::kFailed;
  }
  std::size_t end = 0;
  for (std::size_t i = 0; i < payload.range_count; ++i) {
    const allocator::ByteRange& range = payload.ranges[i];
    const SpanPlace place = place_span(form, range.end - range.begin, end);
    end = place.end();
    auto* const counters = at_address<Counters>(workspace + i % kMostJobs * sizeof(Counters));
    auto* const verdict =
        at_address<Verdict>(workspace + kUnreadVerdicts + i % kMostJobs * sizeof(Verdict));
    DeviceTask task = form.codes_task(place.elements);
    task.source = advance(payload.data, place.codes);
    task.target = advance(target, range.begin);
    task.capacity = std::min(place.codes_room, payload.bytes - place.codes);
    task.verdict = verdict;
    task.counters = counters;
    tasks.codes.push_back(task);
    if (form.kind == DeviceKind::kFloats && form.side_bits != 0) {
      DeviceTask sides = form.sides_task(place.elements);
      sides.source = advance(payload.data, place.sides);
      sides.target = task.target;
      sides.capacity = compress::cuda::device_payload_bytes(sides);
      sides.verdict = verdict;
      sides.counters = counters;
      tasks.sides.push_back(sides);
    }
    if (form.most_near_zero != 0) {
      NearZeroTask near{};
      near.target = task.target;
      near.section = advance(payload.data, place.near_zero);
      near.elements = place.elements;
      near.type = form.type;
      near.most = form.most_near_zero;
      near.verdict = verdict;
      near.counters = counters;
      tasks.near_zero.push_back(near);
    }
    if (form.has_lines()) {
      LineTask lines{};
      lines.target = task.target;
      lines.section = advance(payload.data, place.lines);
      lines.elements = place.elements;
      lines.type = form.type;
      lines.bits = form.bits;
      lines.transform = form.transform;
      lines.lines = form.lines();
      lines.most = form.most_lines;
      lines.verdict = verdict;
      lines.counters = counters;
      tasks.lines.push_back(lines);
    }
  }
  const compress::StreamHandle handle{stream.value};
  std::size_t queued = 0;
  const auto ok = [](LaunchStatus status) { return status == LaunchStatus::kOk; };
  const bool done =
      ok(compress::cuda::decode_on_device(launcher_, tasks.codes, handle, &queued)) &&
      (tasks.sides.empty() ||
       ok(compress::cuda::move_to_sides_on_device(launcher_, tasks.sides, handle, &queued))) &&
      (tasks.near_zero.empty() || ok(compress::cuda::restore_near_zero_on_device(
                                      launcher_, tasks.near_zero, handle, &queued))) &&
      (tasks.lines.empty() ||
       ok(compress::cuda::restore_lines_on_device(launcher_, tasks.lines, handle, &queued)));
  if (!done) life_.note(launcher_.driver_error());
  if (turn.owns_lock()) life_.note(driver_.stream_synchronize(at_address<void>(stream.value)));
  return done ? CodecStatus::kOk : CodecStatus::kFailed;
}

void DeviceBlockCodec::lock_for_fork() noexcept {
  last_workspace_mutex_.lock();
  mutex_.lock();
  lessons_.lock_for_fork();
  words_.lock_for_fork();
}

void DeviceBlockCodec::unlock_after_fork() noexcept {
  words_.unlock_after_fork();
  lessons_.unlock_after_fork();
  mutex_.unlock();
  last_workspace_mutex_.unlock();
}

}  // namespace pleat::bridge::cuda
