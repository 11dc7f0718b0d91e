// A trace for Perfetto: counters of bytes, phases and steps of threads, lives of blocks, and the
// fate of saved tensors. Only open slices are held.
#include <fmt/format.h>

#include <array>
#include <limits>
#include <map>
#include <memory>
#include <unordered_map>
#include <vector>

#include "formats.h"
#include "perfetto_writer.h"
#include "tools/pleat/trace/live_table.h"
#include "tools/pleat/trace_command/text.h"

namespace pleat::cli {
namespace {

using trace::ByteClass;
using trace::Ledger;
using Track = PerfettoWriter::Track;
using Details = PerfettoWriter::Details;

constexpr std::int64_t kLeastBytes = 1 << 20;  // of a slice, unless --min-size says another

// Tracks by what they are; each kind has its own numbers.
constexpr Track kResidentTrack = 2, kSmallTrack = 3;
constexpr Track kCounters = Track{1} << 16, kCountersOfDevice = 64;
constexpr Track kThreads = Track{1} << 40, kLanes = Track{2} << 40;
constexpr Track kLanesOfPart = Track{1} << 36;

// Tracks of one name, on each of which at most one slice is open.
class Lanes {
 public:
  Lanes(PerfettoWriter& out, Track& next, std::string name)
      : out_(out), next_(next), name_(std::move(name)) {}
  [[nodiscard]] Track take() {
    if (free_.empty()) {
      out_.lane(next_, name_);
      return next_++;
    }
    const Track track = free_.back();
    free_.pop_back();
    return track;
  }
  void give_back(Track track) { free_.push_back(track); }

 private:
  PerfettoWriter& out_;
  Track& next_;
  std::string name_;
  std::vector<Track> free_;
};

// Slices that are open, each by an id.
class OpenSlices {
 public:
  explicit OpenSlices(PerfettoWriter& out) : out_(out) {}

  void begin(std::uint64_t id, Lanes& lanes, std::uint64_t time_ns, const Details& details) {
    end(id, time_ns);
    Open* const open = open_.insert(id);
    if (open == nullptr) return;
    *open = {lanes.take(), &lanes};
    out_.begin_slice(open->track, time_ns, details);
  }
  void end(std::uint64_t id, std::uint64_t time_ns) {
    const Open* const open = open_.find(id);
    if (open == nullptr) return;
    out_.end_slice(open->track, time_ns);
    open->lanes->give_back(open->track);
    open_.erase(id);
  }
  void end_all(std::uint64_t time_ns) {
    open_.for_each(
        [&](std::uint64_t /*id*/, const Open& open) { out_.end_slice(open.track, time_ns); });
  }

 private:
  struct Open {
    Track track = 0;
    Lanes* lanes = nullptr;
  };
  PerfettoWriter& out_;
  trace::LiveTable<Open> open_;
};

// ---- a device -----------------------------------------------------------------------------------

class PerfettoDevice {
 public:
  PerfettoDevice(const TraceExport& to, PerfettoWriter& out, Track& next, int device)
      : to_(to),
        out_(out),
        device_(device),
        name_(device_text(device)),
        least_bytes_(to.request.names_size ? 0 : kLeastBytes),
        raw_lanes_(out, next, name_ + " saved: raw"),
        payload_lanes_(out, next, name_ + " saved: payloads"),
        restored_lanes_(out, next, name_ + " saved: restored"),
        blocks_(out),
        raw_(out),
        payloads_(out),
        restored_(out) {
    block_lanes_.reserve(trace::kByteClasses);  // open slices point to them
    for (std::size_t i = 0; i < trace::kByteClasses; ++i)
      block_lanes_.emplace_back(out, next,
                                fmt::format("{} blocks: {}", name_, trace::kClassNames[i]));
    const std::string axis = "pleat " + name_;
    out.counter(track(0), name_ + " live", axis);
    out.counter(track(1), name_ + " reserved", axis);
    for (std::size_t i = 0; i < trace::kByteClasses; ++i)
      out.counter(track(2 + i), fmt::format("{} {}", name_, trace::kClassNames[i]), axis);
    told_.fill(std::numeric_limits<std::int64_t>::min());
  }

  // After an event in the time that is asked for.
  void take(const PleatTraceEvent& event, const Ledger& ledger) {
    const trace::Totals& totals = ledger.totals(device_);
    count(0, event.time_ns, totals.live());
    count(1, event.time_ns, totals.reserved());
    for (std::size_t i = 0; i < trace::kByteClasses; ++i)
      count(2 + i, event.time_ns, totals.bytes[i]);
    if (!is_memory(event.kind)) return;
    take_block(event, ledger);
    take_record(event, ledger);
  }
  void end(std::uint64_t time_ns) {
    for (OpenSlices* const slices : {&blocks_, &raw_, &payloads_, &restored_})
      slices->end_all(time_ns);
  }

 private:
  [[nodiscard]] Track track(std::size_t which) const {
    return kCounters + static_cast<Track>(device_ + 1) * kCountersOfDevice + which;
  }
  void count(std::size_t which, std::uint64_t time_ns, std::int64_t value) {
    if (told_[which] == value) return;
    told_[which] = value;
    out_.count(track(which), time_ns, value);
  }
  // Joins what becomes of a record. Unique over devices.
  [[nodiscard]] std::uint64_t flow(std::uint64_t record) const {
    return static_cast<std::uint64_t>(device_ + 2) << 56 ^ record;
  }
  void take_block(const PleatTraceEvent& event, const Ledger& ledger) {
    if (event.kind == PLEAT_TRACE_FREE) return blocks_.end(event.block, event.time_ns);
    if (event.kind != PLEAT_TRACE_ALLOCATE) return;
    const std::optional<trace::LiveEntry> block = ledger.block(device_, event.block);
    if (!block || block->bytes < least_bytes_ || !to_.is_of_class(block->of)) return;
    const trace::Origin place = block->place();
    if (!to_.passes(block->bytes, place.op, block->step)) return;
    Details details;
    details.op = place.op;
    details.stack = place.stack;
    details.bytes = block->bytes;
    details.of = block->of;
    details.step = to_.lives.step_number(block->step);
    details.block = event.block;
    blocks_.begin(event.block, block_lanes_[static_cast<std::size_t>(block->of)], event.time_ns,
                  details);
  }
  void take_record(const PleatTraceEvent& event, const Ledger& ledger) {
    switch (event.kind) {
      case PLEAT_TRACE_TAG:
        return begin_record(raw_, event.record, raw_lanes_, ByteClass::kSavedRaw, event, ledger);
      case PLEAT_TRACE_ENCODE:
        raw_.end(event.record, event.time_ns);
        return begin_record(payloads_, event.record, payload_lanes_, ByteClass::kPayloads, event,
                            ledger);
      case PLEAT_TRACE_KEEP:
        return raw_.end(event.record, event.time_ns);
      case PLEAT_TRACE_DROP:
        raw_.end(event.record, event.time_ns);
        return payloads_.end(event.record, event.time_ns);
      case PLEAT_TRACE_RESTORE:
        return begin_record(restored_, event.block, restored_lanes_, ByteClass::kRestored, event,
                            ledger);
      case PLEAT_TRACE_RESTORED_FREE:
        return restored_.end(event.block, event.time_ns);
      default:
        return;
    }
  }
  void begin_record(OpenSlices& slices, std::uint64_t id, Lanes& lanes, ByteClass of,
                    const PleatTraceEvent& event, const Ledger& ledger) {
    const trace::LiveRecord* const record = ledger.record(device_, event.record);
    if (record == nullptr || record->bytes < least_bytes_ || !to_.is_of_class(of) ||
        !to_.passes(record->bytes, record->origin.op, record->step)) {
      return;
    }
    Details details;
    details.op = record->origin.op;
    details.stack = record->origin.stack;
    details.bytes = record->bytes;
    if (of == ByteClass::kPayloads) details.payload_bytes = record->payload_bytes;
    details.of = of;
    details.step = to_.lives.step_number(record->step);
    details.record = event.record;
    if (event.block != 0) details.block = event.block;
    details.flow = flow(event.record);
    slices.begin(id, lanes, event.time_ns, details);
  }

  const TraceExport& to_;
  PerfettoWriter& out_;
  const int device_;
  const std::string name_;
  const std::int64_t least_bytes_;
  std::vector<Lanes> block_lanes_;  // by class
  Lanes raw_lanes_, payload_lanes_, restored_lanes_;
  OpenSlices blocks_, raw_, payloads_;  // by block; by record
  OpenSlices restored_;                 // by block: it may outlive its record
  std::array<std::int64_t, 2 + trace::kByteClasses> told_{};
};

// ---- the process --------------------------------------------------------------------------------

class Perfetto {
 public:
  Perfetto(const TraceExport& to, PerfettoPlace place)
      : to_(to),
        next_lane_(kLanes + kLanesOfPart * place.part),
        out_(to.out, to.file.definitions(), to.lines, std::move(place)) {}

  void write() {
    out_.begin(to_.file.process(), to_.lives.start_ns);
    out_.counter(kResidentTrack, "resident", "pleat process");
    out_.counter(kSmallTrack, "small tensors", "pleat small");
    for (const auto& [index, lives] : to_.lives.devices)
      if (to_.wants(index))
        devices_.emplace(index, std::make_unique<PerfettoDevice>(to_, out_, next_lane_, index));
    std::uint64_t last_ns = to_.lives.start_ns;
    to_.for_each([](const PleatTraceEvent& /*event*/, const Ledger& /*ledger*/) {},
                 [&](const PleatTraceEvent& event, const Ledger& ledger) {
                   if (event.time_ns > to_.filter.until_ns) return false;
                   if (!to_.filter.holds(event.time_ns)) return true;
                   last_ns = event.time_ns;
                   take(event, ledger);
                   return true;
                 });
    for (const auto& [index, device] : devices_) device->end(last_ns);
    for (auto& [tid, thread] : threads_) end(thread, last_ns);
  }

 private:
  struct Thread {
    Track track = 0;
    bool in_step = false;
    std::uint8_t phase = 0;
  };

  void take(const PleatTraceEvent& event, const Ledger& ledger) {
    if (trace::changes_sums(event.kind)) {
      const auto device = devices_.find(event.device);
      if (device != devices_.end()) device->second->take(event, ledger);
    }
    Details details;
    details.bytes = static_cast<std::int64_t>(event.bytes);
    switch (event.kind) {
      case PLEAT_TRACE_PHASE:
        return take_phase(event, ledger);
      case PLEAT_TRACE_RESIDENT:
        return out_.count(kResidentTrack, event.time_ns, ledger.resident());
      case PLEAT_TRACE_SMALL:
        return out_.count(kSmallTrack, event.time_ns, ledger.small());
      case PLEAT_TRACE_OUT_OF_MEMORY:
        if (!devices_.contains(event.device)) return;
        details.name = "out of memory";
        details.op = event.op;
        details.stack = event.stack;
        return out_.instant(PerfettoWriter::kProcess, event.time_ns, details);
      case PLEAT_TRACE_LOST:
        details = {};
        details.name = "events were lost";
        return out_.instant(PerfettoWriter::kProcess, event.time_ns, details);
      default:
        return;
    }
  }
  // Phases lie within the step on the thread that began it; other threads have phases only.
  void take_phase(const PleatTraceEvent& event, const Ledger& ledger) {
    Thread* const own = thread(event.thread);
    if (own == nullptr) return;
    end_phase(*own, event.time_ns);
    if (ledger.step() != step_ && ledger.step() < to_.lives.steps.size()) {
      step_ = ledger.step();
      if (step_thread_ != nullptr) {
        const std::uint8_t phase = step_thread_->phase;
        end(*step_thread_, event.time_ns);
        begin_phase(*step_thread_, event.time_ns, phase);
      }
      step_thread_ = own;
      own->in_step = true;
      const std::string name = fmt::format("step {}", to_.lives.steps[step_].number);
      Details details;
      details.name = name;
      details.step = to_.lives.steps[step_].number;
      out_.begin_slice(own->track, event.time_ns, details);
    }
    begin_phase(*own, event.time_ns, event.phase);
  }
  void begin_phase(Thread& thread, std::uint64_t time_ns, std::uint8_t phase) {
    thread.phase = phase;
    if (phase == PLEAT_TRACE_PHASE_OTHER) return;
    Details details;
    details.name = trace::phase_name(phase);
    out_.begin_slice(thread.track, time_ns, details);
  }
  void end_phase(Thread& thread, std::uint64_t time_ns) {
    if (std::exchange(thread.phase, std::uint8_t{0}) != PLEAT_TRACE_PHASE_OTHER)
      out_.end_slice(thread.track, time_ns);
  }
  void end(Thread& thread, std::uint64_t time_ns) {
    end_phase(thread, time_ns);
    if (std::exchange(thread.in_step, false)) out_.end_slice(thread.track, time_ns);
  }
  Thread* thread(std::uint32_t tid) {
    const auto known = threads_.find(tid);
    if (known != threads_.end()) return &known->second;
    if (threads_.size() >= kMostThreads) return nullptr;
    Thread& thread = threads_[tid];
    thread.track = kThreads + tid;
    out_.thread(thread.track, tid, tid == to_.file.process().pid);
    return &thread;
  }

  const TraceExport& to_;
  Track next_lane_;
  PerfettoWriter out_;
  std::map<int, std::unique_ptr<PerfettoDevice>> devices_;
  std::map<std::uint32_t, Thread> threads_;
  std::uint32_t step_ = trace::kNoStep;
  Thread* step_thread_ = nullptr;
};

}  // namespace

void export_perfetto(const TraceExport& to) {
  export_perfetto_process(to, only_place(to.file.process()));
}

void export_perfetto_process(const TraceExport& to, PerfettoPlace place) {
  Perfetto(to, std::move(place)).write();
}

}  // namespace pleat::cli
