#include "lives.h"

#include <algorithm>
#include <memory>

#include "interpose/trace/lifecycle.h"
#include "interpose/trace/wrapping.h"
#include "live_table.h"

namespace pleat::trace {
namespace {

// Of blocks of a device: beyond, their bytes are of kUnknown.
constexpr std::size_t kMostBlocks = 1u << 28;
constexpr std::size_t kMostSteps = 1u << 20;

constexpr Columns kWanted =
    column_bit(Column::kTime) | column_bit(Column::kKind) | column_bit(Column::kPhase) |
    column_bit(Column::kReason) | column_bit(Column::kDevice) | column_bit(Column::kThread) |
    column_bit(Column::kBytes) | column_bit(Column::kBlock) | column_bit(Column::kRecord) |
    (((1u << PLEAT_TRACE_CHANGES) - 1) << static_cast<unsigned>(Column::kChange));

struct Birth : AgeingBlock {
  std::uint32_t number = 0;  // of the block; of a present one its place among these
  bool present = false;
};

struct Device : AgeingDevice<Birth, LifeRecord, LiveTable, false> {
  Beginning beginning;
  DeviceLives lives;
};

class FirstPass : private AgeingLifecycle<FirstPass> {
 public:
  FirstPass(const File& file, const Filter& filter) : filter_(filter) {
    lives_.start_ns = lives_.first_time_ns = lives_.last_time_ns = file.start_ns();
  }

  bool take(const PleatTraceEvent& event) {
    if (lives_.events >= filter_.most_events) return false;
    if (lives_.events == 0) {
      lives_.first_time_ns = lives_.last_time_ns = event.time_ns;
    }
    lives_.last_time_ns = std::max(lives_.last_time_ns, event.time_ns);
    if (changes_sums(event.kind)) {
      Device& on = device(event.device);
      take_memory(on, event);
      add_changes(on, event);
    } else {
      take_mark(event);
    }
    if (event.kind == PLEAT_TRACE_PHASE || !any_phase_) lives_.end_event = lives_.events;
    any_phase_ = any_phase_ || event.kind == PLEAT_TRACE_PHASE;
    ++lives_.events;
    if (event.kind >= PLEAT_TRACE_RESIDENT && event.kind <= PLEAT_TRACE_LOST) ++lives_.own_marks;
    return true;
  }
  [[nodiscard]] Lives end() {
    lives_.counted_steps = lives_.steps.size();
    if (lives_.counted_steps > 0 && !step_trains_) --lives_.counted_steps;
    for (auto& [index, device] : devices_) {
      DeviceLives& lives = device->lives;
      device->blocks.for_each([&](std::uint64_t /*id*/, Birth& birth) {
        // The end of the trace ends the phases of training.
        device->leave(birth);
        const Age age = age_after(birth.phase);
        if (birth.age == Age::kYoung || birth.age == Age::kWaiting)
          birth.age = age == Age::kInput ? Age::kUnknown : age;
        dies(*device, birth);
      });
      lives.steps.resize(lives_.steps.size());
      if (!lives.steps.empty()) lives.steps.back().live_at_end = lives.end[PLEAT_TRACE_REQUESTED];
      lives_.devices.emplace(index, std::move(lives));
    }
    return std::move(lives_);
  }

 private:
  Device& device(int index) {
    if (last_device_ != nullptr && index == last_index_) return *last_device_;
    std::unique_ptr<Device>& device = devices_[index];
    if (device == nullptr) {
      device = std::make_unique<Device>();
      device->lives.device = index;
    }
    last_index_ = index;
    last_device_ = device.get();
    return *device;
  }
  void take_mark(const PleatTraceEvent& event) {
    const auto bytes = static_cast<std::int64_t>(event.bytes);
    switch (event.kind) {
      case PLEAT_TRACE_PHASE:
        begin_phase(event);
        break;
      case PLEAT_TRACE_RESIDENT:
        lives_.resident_known |= filter_.holds(event.time_ns);
        note_peak(lives_.resident, bytes, event);
        break;
      case PLEAT_TRACE_SMALL:
        lives_.most_small_bytes = std::max(lives_.most_small_bytes, bytes);
        break;
      case PLEAT_TRACE_MODULE:
        lives_.has_modules = true;
        break;
      case PLEAT_TRACE_LEFT:
        device(event.device);  // nothing else may be known of it
        break;
      case PLEAT_TRACE_PLAN:
        device(event.device).lives.has_plans = true;
        break;
      case PLEAT_TRACE_LOST:
        lives_.lost_events += event.bytes;
        break;
      case PLEAT_TRACE_DUMP:
        lives_.last_dump = lives_.events;
        break;
      default:
        break;
    }
  }
  void begin_phase(const PleatTraceEvent& event) {
    for (auto& [index, device] : devices_) device->begin_phase(event.thread);
    std::vector<Step>& steps = lives_.steps;
    // A thread that lags behind does not begin a step again.
    const bool is_next = steps.empty() || event.bytes > steps.back().number;
    if (is_next && steps.size() < kMostSteps) begin_step(event);
    if (event.bytes >= steps.back().number &&
        (event.phase == PLEAT_TRACE_PHASE_FORWARD || event.phase == PLEAT_TRACE_PHASE_BACKWARD)) {
      step_trains_ = true;
    }
  }
  void begin_step(const PleatTraceEvent& event) {
    std::vector<Step>& steps = lives_.steps;
    step_trains_ = false;
    steps.push_back({event.bytes, event.time_ns, lives_.events});
    for (auto& [index, device] : devices_) {
      const std::int64_t live = device->lives.end[PLEAT_TRACE_REQUESTED];
      std::vector<DeviceStep>& own = device->lives.steps;
      own.resize(steps.size() - 1);  // a device may appear late
      if (!own.empty()) own.back().live_at_end = live;
      own.push_back({live, 0});
    }
  }
  void take_memory(Device& device, const PleatTraceEvent& event) {
    switch (event.kind) {
      case PLEAT_TRACE_PRESENT:
        device.beginning.present = true;
        break;
      case PLEAT_TRACE_OUT_OF_MEMORY:
        if (!device.lives.first_out_of_memory) device.lives.first_out_of_memory = lives_.events;
        device.lives.last_out_of_memory = lives_.events;
        ++device.lives.out_of_memory;
        break;
      case PLEAT_TRACE_ALLOCATE:
        if (device.blocks.find(event.block) != nullptr) ++lives_.disagreements;
        [[fallthrough]];
      case PLEAT_TRACE_CHUNK_ALLOCATE:
        device.beginning.note_allocated(event.block);
        [[fallthrough]];
      default:
        Lifecycle::take(device, event);
    }
    device.lives.first_payloads =
        std::max(device.lives.first_payloads, wrapping_subtract(0, device.chunked));
  }
  void add_changes(Device& device, const PleatTraceEvent& event) {
    DeviceLives& lives = device.lives;
    for (std::size_t i = 0; i < PLEAT_TRACE_CHANGES; ++i) {
      if (event.change[i] == 0) continue;
      lives.end[i] = wrapping_add(lives.end[i], event.change[i]);
      note_peak(lives.peaks[i], lives.end[i], event);
    }
    const std::size_t steps = lives_.steps.size();
    if (steps == 0) return;
    if (lives.steps.size() != steps) lives.steps.resize(steps);
    DeviceStep& step = lives.steps.back();
    step.peak = std::max(step.peak, lives.end[PLEAT_TRACE_REQUESTED]);
  }
  void note_peak(Peak& peak, std::int64_t bytes, const PleatTraceEvent& event) const {
    if (bytes <= peak.bytes || !filter_.holds(event.time_ns)) [[likely]]
      return;
    const auto step = static_cast<std::uint32_t>(lives_.steps.size());
    peak = {bytes, lives_.events, event.time_ns, step == 0 ? kNoStep : step - 1, event.phase};
  }

  friend class Lifecycle<FirstPass>;
  Birth* born(Device& device, const PleatTraceEvent& event) {
    return add_block(device, event, false);
  }
  // It was there before its ALLOCATE could be seen.
  Birth* mentioned(Device& device, const PleatTraceEvent& event) {
    const bool present = device.beginning.was_there(event.block);
    if (!present) ++lives_.disagreements;
    return add_block(device, event, present);
  }
  Birth* add_block(Device& device, const PleatTraceEvent& event, bool present) {
    DeviceLives& lives = device.lives;
    const bool room = lives.classes.size() < kMostBlocks && lives.present.size() < kMostBlocks / 16;
    Birth* const birth = room ? device.blocks.insert(event.block) : nullptr;
    if (birth == nullptr) {
      ++lives_.disagreements;
      return nullptr;
    }
    birth->bytes = signed_of(event.bytes);
    birth->present = present;
    birth->thread = event.thread;
    birth->phase = event.phase;
    if (present) {
      birth->age = Age::kUnknown;
      birth->number = static_cast<std::uint32_t>(lives.present.size());
      lives.present.push_back({event.block, birth->bytes, ByteClass::kUnknown});
    } else {
      device.join_young(event.block);
      birth->number = static_cast<std::uint32_t>(lives.classes.size());
      lives.classes.push_back(ByteClass::kUnknown);
    }
    ++lives.blocks;
    return birth;
  }
  static void dies(Device& device, Birth& birth) {
    DeviceLives& lives = device.lives;
    // A waiting block outlived another thread's phase; its own phase had not ended.
    const bool waits = birth.age == Age::kWaiting && birth.life() == ByteClass::kTemporary;
    const ByteClass of = waits ? ByteClass::kUnknown : birth.life();
    if (birth.present) {
      lives.present[birth.number].of = of;
    } else {
      lives.classes[birth.number] = of;
    }
    device.leave(birth);
  }

  const Filter& filter_;
  Lives lives_;
  bool any_phase_ = false;
  bool step_trains_ = false;  // the last step has forward or backward
  std::map<int, std::unique_ptr<Device>> devices_;
  int last_index_ = 0;
  Device* last_device_ = nullptr;
};

}  // namespace

Lives find_lives(const File& file, const Filter& filter, const Progress& progress) {
  FirstPass pass(file, filter);
  const Problems problems = file.for_each(
      [&](const PleatTraceEvent& event) { return pass.take(event); }, kWanted, progress);
  Lives lives = pass.end();
  lives.problems = problems;
  return lives;
}

}  // namespace pleat::trace
