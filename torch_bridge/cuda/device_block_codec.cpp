#include "torch_bridge/cuda/device_block_codec.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <thread>
#include <utility>

#include "compress/cuda/device_codec.h"
#include "compress/format.h"
#include "torch_bridge/cuda/device_self_test.h"
#include "torch_bridge/cuda/device_tasks.h"

namespace pleat::bridge::cuda {
namespace {

using allocator::CodecStatus;
using allocator::EncodeRequest;
using allocator::PayloadView;
using allocator::StreamId;
using allocator::cuda::DeviceContext;
using allocator::cuda::DeviceWords;
using compress::LaunchStatus;
using compress::block::BlockSpec;
using compress::block::is_worth_having;
using compress::cuda::DeviceTask;
using compress::cuda::Verdict;

template <class T>
T* at_address(std::uint64_t address) noexcept {
  return reinterpret_cast<T*>(address);
}
std::byte* advance(const void* from, std::size_t bytes) noexcept {
  return const_cast<std::byte*>(static_cast<const std::byte*>(from)) + bytes;
}

}  // namespace

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
  if (const int error = scales_.open(); error != allocator::cuda::kSuccess) {
    why = "the driver gives no memory for Pleat's samples, error " + std::to_string(error);
    return Opened::kNever;
  }
  usable_ = device_codes_as_the_cpu(launcher_, words_, driver_, life_, stream, why);
  return usable_ ? Opened::kYes : Opened::kNever;
}

// ---- plan ---------------------------------------------------------------------------------------

void DeviceBlockCodec::count_hold(DeviceHold why, std::size_t bytes) noexcept {
  counts_.holds.add(why, bytes);
  counts_.totals.add_kept_raw(bytes);
}

allocator::EncodePlan DeviceBlockCodec::plan(const EncodeRequest& request) noexcept {
  const auto hold = [&](DeviceHold why) -> allocator::EncodePlan {
    if (!request.closed) count_hold(why, request.source_bytes);
    return {};
  };
  KeyLessons::Answer answer{.lesson = {}, .pauses = false};
  KeyScales::Answer scales;
  if (!request.closed) {
    take_late_verdicts();
    if (lessons_.expects(request.key)) settle(request.key);
    if (usable_) {
      answer = lessons_.ask(request.key, request.choice);
      await_scales(request.key);
      scales = scales_.ask(request);
    }
  }
  if (!usable_) return hold(DeviceHold::kNoDevice);
  if (answer.pauses) return hold(DeviceHold::kNotYet);
  const std::optional<DevicePlan> found = plan_on_device(
      BlockSpec::unpack(request.choice.words), request.closed ? nullptr : &answer.lesson,
      scales.scales, request.ranges, request.range_count);
  if (!found.has_value() ||
      (!request.closed && !is_worth_having(found->payload_bytes, request.source_bytes))) {
    return hold(DeviceHold::kNoForm);
  }
  allocator::EncodePlan plan;
  try {
    auto details = std::make_unique<DevicePlan>(*found);
    details->due = scales.due;
    plan.details = std::move(details);
  } catch (...) {
    return hold(DeviceHold::kNoForm);
  }
  plan.room = found->payload_bytes;
  plan.scratch = found->scratch_bytes;
  return plan;
}

// ---- encode -------------------------------------------------------------------------------------

allocator::EncodeResult DeviceBlockCodec::encode(const EncodeRequest& request,
                                                 const allocator::EncodePlan& plan, void* payload,
                                                 std::size_t /*capacity*/) noexcept {
  const DevicePlan& d = static_cast<const DevicePlan&>(*plan.details);
  const DeviceForm& form = d.form;
  const auto refused = [&](DeviceHold why) -> allocator::EncodeResult {
    count_hold(why, request.source_bytes);
    return {};
  };
  const bool nothing = form.kind == FormKind::kNothing;
  std::unique_ptr<ExpectedPayload> expected;
  DeviceTasks tasks;
  try {
    expected = std::make_unique<ExpectedPayload>();
    tasks.reserve(form, nothing ? 0 : request.range_count);
    expected->spans.reserve(tasks.codes.capacity());
    if (d.judged) expected->codes.reserve(tasks.codes.capacity());
    expected->lines.reserve(tasks.lines.capacity());
    expected->near_zero.reserve(tasks.near_zero.capacity());
  } catch (...) {
    return refused(DeviceHold::kNoWords);
  }
  ExpectedPayload& e = *expected;
  e.key = request.key;
  e.choice = request.choice;
  e.spec = d.spec;
  e.form = form;
  e.gated = d.gated;
  e.stream = request.stream;
  e.source_bytes = request.source_bytes;
  e.room = d.payload_bytes;
  allocator::EncodeResult result{CodecStatus::kOk, d.payload_bytes, form.pack(), {}};
  if (nothing) {
    e.elements = request.source_bytes;
    count(e, d.payload_bytes);
    return result;
  }
  const DeviceContext context(driver_, life_, device_);
  const std::uint64_t workspace = context ? words_.workspace(request.stream) : 0;
  if (workspace == 0) return refused(DeviceHold::kNoDevice);
  bool short_of_words = false, queued = true;
  // Has the device's verdict written where the host can see it.
  const auto see = [&](auto& task, std::vector<void*>& slots) {
    if (const DeviceWords::Slot slot = words_.take_slot()) {
      slots.push_back(slot.host);
      task.verdict = at_address<Verdict>(slot.device);
    } else {
      short_of_words = true;
    }
  };
  std::size_t end = 0;
  for (std::size_t i = 0; i < request.range_count; ++i) {
    const allocator::ByteRange& range = request.ranges[i];
    const SpanPlace& place = e.spans.emplace_back(place_span(form, range.end - range.begin, end));
    end = place.end();
    e.elements += place.elements;
    tasks.add(DeviceTasks::Way::kEncode, form, place, advance(request.source, range.begin), payload,
              Workspace(workspace));
    DeviceTask& codes = tasks.codes.back();
    codes.nonce = request.nonce + i;
    codes.any_byte = d.any_byte;
    if (form.kind == FormKind::kSides) codes.sides = d.spec.sides;
    if (d.scales.table != nullptr) {
      // The driver copies so few bytes of the host's before the call returns.
      codes.exponents.table = static_cast<std::int8_t*>(payload) + place.table(form);
      queued &= life_.note(driver_.copy(
                    reinterpret_cast<std::uint64_t>(codes.exponents.table),
                    reinterpret_cast<std::uint64_t>(d.scales.table->data()), d.scales.table->size(),
                    at_address<void>(request.stream.value))) == allocator::cuda::kSuccess;
    }
    if (d.judged && form.kind == FormKind::kLossy) {
      codes.widest_step = compress::block::widest_step(d.spec.steps);
      codes.beside = d.beside;
    }
    if (d.judged) see(codes, e.codes);
    if (place.codes != place.scratch) {
      queued &= life_.note(driver_.set_bytes(
                    reinterpret_cast<std::uint64_t>(codes.scratch), 0, place.codes - place.scratch,
                    at_address<void>(request.stream.value))) == allocator::cuda::kSuccess;
    }
    if (form.has_sides_beside()) {
      tasks.sides.back().nonce = codes.nonce;
      tasks.sides.back().sides = d.beside;
    }
    if (form.most_near_zero != 0) see(tasks.near_zero.back(), e.near_zero);
    if (form.has_lines()) {
      tasks.lines.back().scratch = request.scratch;
      see(tasks.lines.back(), e.lines);
    }
  }
  if (short_of_words || !queued) {
    give_slots(e);
    return refused(short_of_words ? DeviceHold::kNoWords : DeviceHold::kNoDevice);
  }
  if (d.due) take_sample(request);
  if (!tasks.launch_encode(launcher_, request.stream)) {
    // It is unknown which of them the device will run, so their words stay taken.
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
      result.ticket = {++last_ticket_,
                       form.kind == FormKind::kLossy && compress::has_wide_groups(form.bits)};
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

// ---- verdicts -----------------------------------------------------------------------------------

// Whether the payload is what was asked for. The first time its key learns from it.
bool DeviceBlockCodec::judge(ExpectedPayload& e) noexcept {
  if (!e.good.has_value()) {
    const ExpectedPayload::Found found = e.found();
    lessons_.learn(e.key, e.choice, [&](KeyLesson& lesson) { e.teach(lesson, found); });
    e.good = e.is_good(found);
    if (!*e.good && !e.gated) counts_.surprises.fetch_add(1, std::memory_order_relaxed);
  }
  return *e.good;
}

// Judges what of a key is decided. The stream of a payload that is not, if there is one.
std::optional<StreamId> DeviceBlockCodec::judge_all_of(allocator::TensorKey key) noexcept {
  std::optional<StreamId> late;
  const auto look = [&](ExpectedPayload& e) {
    if (e.key != key || e.good.has_value()) return;
    if (e.decided()) {
      judge(e);
    } else {
      late = e.stream;
    }
  };
  const std::lock_guard<std::mutex> guard(mutex_);
  for (const auto& [ticket, expected] : asked_) look(*expected);
  for (const auto& expected : unasked_) look(*expected);
  return late;
}

// The key learns what its payloads that are queued come to.
void DeviceBlockCodec::settle(allocator::TensorKey key) noexcept {
  if (const std::optional<StreamId> late = judge_all_of(key)) {
    (void)await(*late, [&] { return !judge_all_of(key).has_value(); });
    judge_all_of(key);
  }
}

// The key's scales are what its earlier tensors have shown.
void DeviceBlockCodec::await_scales(allocator::TensorKey key) noexcept {
  const std::optional<StreamId> late = scales_.expects(key);
  if (late.has_value() && await(*late, [&] { return !scales_.expects(key).has_value(); }) &&
      scales_.expects(key).has_value()) {
    scales_.forget(*late);
  }
}

void DeviceBlockCodec::take_sample(const EncodeRequest& request) noexcept {
  if (const std::optional<StreamId> late = scales_.is_full()) {
    (void)await(*late, [&] { return !scales_.is_full().has_value(); });
  }
  scales_.sample(request);
}

// Waits until `decided()`, not for what the stream was given later: the device goes on with that.
// Ends too once the stream has nothing left to do, or the device has failed. False if it ends for
// want of patience: a function of the host's in the stream may need a lock of the caller's, such as
// the interpreter's.
template <class Decided>
bool DeviceBlockCodec::await(StreamId stream, Decided&& decided) noexcept {
  constexpr std::chrono::microseconds kBetweenLooks{20};
  constexpr std::chrono::seconds kPatience{1};
  constexpr int kLooksAwake = 50;  // some 20 us: to sleep takes four times as long as it is told
  for (int look = 0; look < kLooksAwake; ++look) {
    if (decided()) return true;
    std::this_thread::yield();
  }
  const auto begin = std::chrono::steady_clock::now();
  const DeviceContext context(driver_, life_, device_);
  while (context && !decided() &&
         life_.note(driver_.stream_query(at_address<void>(stream.value))) ==
             allocator::cuda::kNotReady) {
    if (std::chrono::steady_clock::now() - begin > kPatience) return false;
    std::this_thread::sleep_for(kBetweenLooks);
  }
  return true;
}

void DeviceBlockCodec::give_slots(const ExpectedPayload& e) noexcept {
  e.each_slot([this](void* slot) { words_.give_slot(slot); });
}

void DeviceBlockCodec::take_late_verdicts() noexcept {
  for (;;) {
    std::unique_ptr<ExpectedPayload> first;
    {
      const std::lock_guard<std::mutex> guard(mutex_);
      if (unasked_.empty() || !unasked_.front()->decided()) return;
      first = std::move(unasked_.front());
      unasked_.pop_front();
    }
    judge(*first);
    give_slots(*first);
  }
}

bool DeviceBlockCodec::is_decided(allocator::EncodeTicket ticket) noexcept {
  const std::lock_guard<std::mutex> guard(mutex_);
  const auto at = asked_.find(ticket.value);
  return at == asked_.end() || at->second->decided();
}

allocator::EncodeResult DeviceBlockCodec::verdict(allocator::EncodeTicket ticket,
                                                  bool wait) noexcept {
  bool patient = true;
  if (wait && !is_decided(ticket)) {
    StreamId stream;
    {
      const std::lock_guard<std::mutex> guard(mutex_);
      if (const auto at = asked_.find(ticket.value); at != asked_.end())
        stream = at->second->stream;
    }
    patient = await(stream, [&] { return is_decided(ticket); });
  }
  if (!is_decided(ticket)) {
    if (!wait || !patient) return {.status = CodecStatus::kQueued};
    forget(ticket);  // the device has failed, or is gone: no verdict will come
    return {};
  }
  std::unique_ptr<ExpectedPayload> expected;
  {
    const std::lock_guard<std::mutex> guard(mutex_);
    const auto at = asked_.find(ticket.value);
    if (at == asked_.end()) return {};
    expected = std::move(at->second);
    asked_.erase(at);
  }
  allocator::EncodeResult result;
  if (judge(*expected)) {
    result = {CodecStatus::kOk, expected->bytes(), expected->form.pack(), {}};
    count(*expected, result.payload_bytes);
  } else {
    count_hold(DeviceHold::kRefused, expected->source_bytes);
  }
  give_slots(*expected);
  return result;
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

void DeviceBlockCodec::count(const ExpectedPayload& e, std::size_t payload_bytes) noexcept {
  compress::SpanStatistics seen;
  if (compress::is_floating(e.form.type) && e.form.kind >= FormKind::kLossy &&
      !e.form.is_framed()) {
    seen.groups = (e.elements + 255) / 256;
    if (e.form.bits == 0) seen.two_valued_groups = seen.groups;
  }
  counts_.totals.add(e.spec, e.elements, payload_bytes, seen);
}

void DeviceBlockCodec::lock_for_fork() noexcept {
  last_workspace_mutex_.lock();
  mutex_.lock();
  lessons_.lock_for_fork();
  scales_.lock_for_fork();
  words_.lock_for_fork();
}

void DeviceBlockCodec::unlock_after_fork() noexcept {
  words_.unlock_after_fork();
  scales_.unlock_after_fork();
  lessons_.unlock_after_fork();
  mutex_.unlock();
  last_workspace_mutex_.unlock();
}

}  // namespace pleat::bridge::cuda
