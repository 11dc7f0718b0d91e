#include "lives.h"

#include <algorithm>
#include <memory>
#include <unordered_map>

#include "interpose/wrapping.h"
#include "live_table.h"

namespace pleat::trace {
namespace {

// Of blocks of a device: beyond, their bytes are of kUnknown.
constexpr std::size_t kMostBlocks = 1u << 28;
constexpr std::size_t kMostSteps = 1u << 20;
constexpr std::size_t kMostThreads = 1u << 16;

constexpr Columns kWanted =
    column_bit(Column::kTime) | column_bit(Column::kKind) | column_bit(Column::kPhase) |
    column_bit(Column::kReason) | column_bit(Column::kDevice) | column_bit(Column::kThread) |
    column_bit(Column::kBytes) | column_bit(Column::kBlock) | column_bit(Column::kRecord) |
    (((1u << PLEAT_TRACE_CHANGES) - 1) << static_cast<unsigned>(Column::kChange));

struct Birth {
  std::int64_t bytes = 0;
  std::uint64_t marks = 0;         // of any thread, before it
  std::uint64_t thread_marks = 0;  // of its own
  std::uint32_t number = 0;        // of the block; of a present one its place among these
  std::uint32_t thread = 0;
  std::uint8_t phase = 0;
  bool present = false;
  bool parameter = false, gradient = false, restored = false, payload = false;
};

struct Device {
  LiveTable<Birth> blocks;
  LiveTable<std::uint64_t> records;  // the block that each was tagged on
  std::uint64_t first_id = 0;        // of what was allocated; 0: nothing yet
  std::int64_t payloads = 0;         // in chunks, since the trace began
  DeviceLives lives;
};

class FirstPass {
 public:
  FirstPass(const File& file, const Filter& filter) : filter_(filter) {
    lives_.start_ns = lives_.first_time_ns = lives_.last_time_ns = file.start_ns();
  }

  bool take(const PleatTraceEvent& event);
  [[nodiscard]] Lives end();

 private:
  Device& device(int index);
  void take_mark(const PleatTraceEvent& event);
  void begin_phase(const PleatTraceEvent& event);
  void begin_step(const PleatTraceEvent& event);
  void take_memory(Device& device, const PleatTraceEvent& event);
  void take_record(Device& device, const PleatTraceEvent& event);
  void add_changes(Device& device, const PleatTraceEvent& event);
  void note_peak(Peak& peak, std::int64_t bytes, const PleatTraceEvent& event) const;

  // A block that is known, or was mentioned: it was there before its ALLOCATE could be seen.
  Birth* known(Device& device, const PleatTraceEvent& event);
  Birth* born(Device& device, const PleatTraceEvent& event, bool present);
  void died(Device& device, std::uint64_t id, const Birth& birth);
  [[nodiscard]] ByteClass class_of(const Birth& birth, bool alive) const;
  [[nodiscard]] std::uint64_t marks_of(std::uint32_t thread) const;

  const Filter& filter_;
  Lives lives_;
  bool any_phase_ = false;
  bool step_trains_ = false;  // the last step has forward or backward
  std::map<int, std::unique_ptr<Device>> devices_;
  int last_index_ = 0;
  Device* last_device_ = nullptr;
  std::uint64_t marks_ = 0;
  std::unordered_map<std::uint32_t, std::uint64_t> thread_marks_;
};

Device& FirstPass::device(int index) {
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

std::uint64_t FirstPass::marks_of(std::uint32_t thread) const {
  const auto it = thread_marks_.find(thread);
  return it == thread_marks_.end() ? 0 : it->second;
}

// ---- classes ------------------------------------------------------------------------------------

ByteClass FirstPass::class_of(const Birth& birth, bool alive) const {
  if (birth.payload) return ByteClass::kPayloads;
  if (birth.parameter) return ByteClass::kParameters;
  if (birth.gradient) return ByteClass::kGradients;
  const bool outlived = !birth.present && marks_ > birth.marks;
  // The end of the trace ends the phases of training, too.
  if (!birth.present && birth.phase == PLEAT_TRACE_PHASE_OPTIMIZER &&
      (alive || marks_of(birth.thread) > birth.thread_marks)) {
    return ByteClass::kOptimizerState;
  }
  if (outlived &&
      (birth.phase == PLEAT_TRACE_PHASE_OTHER || birth.phase == PLEAT_TRACE_PHASE_DATA)) {
    return ByteClass::kInputs;
  }
  if (birth.restored) return ByteClass::kRestored;
  if (birth.present) return ByteClass::kUnknown;
  if (!outlived && !alive) return ByteClass::kTemporary;
  const bool trains = birth.phase == PLEAT_TRACE_PHASE_FORWARD ||
                      birth.phase == PLEAT_TRACE_PHASE_BACKWARD ||
                      birth.phase == PLEAT_TRACE_PHASE_BETWEEN;
  return trains ? ByteClass::kKept : ByteClass::kUnknown;
}

Birth* FirstPass::born(Device& device, const PleatTraceEvent& event, bool present) {
  DeviceLives& lives = device.lives;
  if (lives.classes.size() >= kMostBlocks || lives.present.size() >= kMostBlocks / 16) {
    ++lives_.disagreements;
    return nullptr;
  }
  Birth* const birth = device.blocks.insert(event.block);
  if (birth == nullptr) {
    ++lives_.disagreements;
    return nullptr;
  }
  birth->bytes = static_cast<std::int64_t>(event.bytes);
  birth->present = present;
  birth->marks = marks_;
  birth->thread = event.thread;
  birth->phase = event.phase;
  if (event.phase == PLEAT_TRACE_PHASE_OPTIMIZER) birth->thread_marks = marks_of(event.thread);
  if (present) {
    birth->number = static_cast<std::uint32_t>(lives.present.size());
    lives.present.push_back({event.block, birth->bytes, ByteClass::kUnknown});
  } else {
    birth->number = static_cast<std::uint32_t>(lives.classes.size());
    lives.classes.push_back(ByteClass::kUnknown);
  }
  ++lives.blocks;
  return birth;
}

Birth* FirstPass::known(Device& device, const PleatTraceEvent& event) {
  if (event.block == 0) return nullptr;
  if (Birth* const birth = device.blocks.find(event.block)) return birth;
  const bool before = device.first_id == 0 || event.block < device.first_id;
  const bool present = device.lives.began_with_something && before;
  if (!present) ++lives_.disagreements;
  return born(device, event, present);
}

void FirstPass::died(Device& device, std::uint64_t id, const Birth& birth) {
  DeviceLives& lives = device.lives;
  const ByteClass of = class_of(birth, false);
  if (birth.present) {
    lives.present[birth.number].of = of;
  } else {
    lives.classes[birth.number] = of;
  }
  device.blocks.erase(id);
}

// ---- events -------------------------------------------------------------------------------------

bool FirstPass::take(const PleatTraceEvent& event) {
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

void FirstPass::take_mark(const PleatTraceEvent& event) {
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

void FirstPass::begin_phase(const PleatTraceEvent& event) {
  ++marks_;
  if (thread_marks_.size() < kMostThreads || thread_marks_.contains(event.thread))
    ++thread_marks_[event.thread];
  std::vector<Step>& steps = lives_.steps;
  // A thread that lags behind does not begin a step again.
  const bool is_next = steps.empty() || event.bytes > steps.back().number;
  if (is_next && steps.size() < kMostSteps) begin_step(event);
  if (event.bytes >= steps.back().number &&
      (event.phase == PLEAT_TRACE_PHASE_FORWARD || event.phase == PLEAT_TRACE_PHASE_BACKWARD)) {
    step_trains_ = true;
  }
}

void FirstPass::begin_step(const PleatTraceEvent& event) {
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

void FirstPass::take_memory(Device& device, const PleatTraceEvent& event) {
  switch (event.kind) {
    case PLEAT_TRACE_PRESENT:
      device.lives.began_with_something = true;
      break;
    case PLEAT_TRACE_ALLOCATE:
      if (event.block == 0) break;
      if (Birth* const old = device.blocks.find(event.block)) {
        ++lives_.disagreements;
        died(device, event.block, Birth(*old));
      }
      if (device.first_id == 0) device.first_id = event.block;
      if (Birth* const birth = born(device, event, false)) birth->payload = event.record != 0;
      break;
    case PLEAT_TRACE_CHUNK_ALLOCATE:
      if (device.first_id == 0) device.first_id = event.block;
      break;
    case PLEAT_TRACE_FREE:
      if (Birth* const birth = device.blocks.find(event.block))
        died(device, event.block, Birth(*birth));
      break;
    case PLEAT_TRACE_SHRINK:
      if (Birth* const birth = device.blocks.find(event.block)) {
        birth->bytes = static_cast<std::int64_t>(event.bytes);
      }
      break;
    case PLEAT_TRACE_PAYLOAD_ALLOCATE:
    case PLEAT_TRACE_PAYLOAD_SHRINK:
    case PLEAT_TRACE_PAYLOAD_FREE:
      device.payloads = wrapping_add(device.payloads, event.change[PLEAT_TRACE_REQUESTED]);
      device.lives.first_payloads =
          std::max(device.lives.first_payloads, wrapping_subtract(0, device.payloads));
      break;
    case PLEAT_TRACE_OUT_OF_MEMORY:
      if (!device.lives.first_out_of_memory) device.lives.first_out_of_memory = lives_.events;
      device.lives.last_out_of_memory = lives_.events;
      ++device.lives.out_of_memory;
      break;
    default:
      take_record(device, event);
  }
}

void FirstPass::take_record(Device& device, const PleatTraceEvent& event) {
  switch (event.kind) {
    case PLEAT_TRACE_LABEL:
      if (Birth* const birth = known(device, event)) {
        birth->parameter |= event.reason == PLEAT_TRACE_LABEL_PARAMETER;
        birth->gradient |= event.reason == PLEAT_TRACE_LABEL_GRADIENT;
      }
      break;
    case PLEAT_TRACE_TAG:
      known(device, event);
      if (std::uint64_t* const record = device.records.find_or_insert(event.record))
        *record = event.block;
      break;
    case PLEAT_TRACE_RESTORE: {
      Birth* const birth = known(device, event);
      const std::uint64_t* const own = device.records.find(event.record);
      const bool adopted = own != nullptr && *own == event.block;
      if (birth != nullptr && !adopted) birth->restored = true;
      break;
    }
    case PLEAT_TRACE_ENCODE:  // version 1 tells of the payload's block only here
      if (event.reason != PLEAT_TRACE_PLACE_OWN_BLOCK) break;
      if (Birth* const birth = device.blocks.find(event.block)) birth->payload = true;
      break;
    case PLEAT_TRACE_DROP:
      device.records.erase(event.record);
      break;
    default:
      break;
  }
}

// ---- sums ---------------------------------------------------------------------------------------

void FirstPass::note_peak(Peak& peak, std::int64_t bytes, const PleatTraceEvent& event) const {
  if (bytes <= peak.bytes || !filter_.holds(event.time_ns)) [[likely]]
    return;
  const auto step = static_cast<std::uint32_t>(lives_.steps.size());
  peak = {bytes, lives_.events, event.time_ns, step == 0 ? kNoStep : step - 1, event.phase};
}

void FirstPass::add_changes(Device& device, const PleatTraceEvent& event) {
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

Lives FirstPass::end() {
  lives_.counted_steps = lives_.steps.size();
  if (lives_.counted_steps > 0 && !step_trains_) --lives_.counted_steps;
  for (auto& [index, device] : devices_) {
    DeviceLives& lives = device->lives;
    device->blocks.for_each([&](std::uint64_t /*id*/, const Birth& birth) {
      const ByteClass of = class_of(birth, true);
      if (birth.present) {
        lives.present[birth.number].of = of;
      } else {
        lives.classes[birth.number] = of;
      }
    });
    lives.steps.resize(lives_.steps.size());
    if (!lives.steps.empty()) lives.steps.back().live_at_end = lives.end[PLEAT_TRACE_REQUESTED];
    lives_.devices.emplace(index, std::move(lives));
  }
  return std::move(lives_);
}

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
