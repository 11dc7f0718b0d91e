// A snapshot as torch's own tools and viewer read it: torch.cuda.memory._snapshot().
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <memory>

#include "interpose/trace/wrapping.h"
#include "snapshot.h"
#include "tools/pleat/trace_command/text.h"
#include "values.h"

namespace pleat::cli {
namespace {

// By class.
constexpr std::array<std::string_view, trace::kByteClasses> kCategories{"parameter",
                                                                        "gradient",
                                                                        "optimizer_state",
                                                                        "input",
                                                                        "activation",
                                                                        "activation_compressed",
                                                                        "activation_restored",
                                                                        "temporary",
                                                                        "kept",
                                                                        "unknown"};

std::string_view class_category(trace::ByteClass of) {
  return kCategories[static_cast<std::size_t>(of)];
}

// The viewer keeps addresses as floating-point numbers: they must be below 2^53 and above 0. All
// move by the same distance, so adjacent blocks stay adjacent.
class Addresses {
 public:
  void note(std::uint64_t address) {
    if (known_ || address == 0) return;
    known_ = true;
    offset_ = (std::uint64_t{1} << 48) - (address & ~std::uint64_t{0x1fffff});
  }
  [[nodiscard]] std::int64_t shown(std::uint64_t address) const {
    return static_cast<std::int64_t>((address + offset_) & ((std::uint64_t{1} << 53) - 1));
  }

 private:
  bool known_ = false;
  std::uint64_t offset_ = 0;
};

class TorchSnapshot {
 public:
  TorchSnapshot(const TraceExport& to, ValueWriter& out)
      : to_(to),
        definitions_(to.file.definitions()),
        out_(out),
        groups_(to.request.groups, definitions_, to.lines) {}

  void write(const std::vector<std::unique_ptr<SnapshotDevice>>& devices) {
    for (const auto& device : devices) note_addresses(*device);
    out_.begin_dict();
    out_.key("segments");
    out_.begin_list();
    for (const auto& device : devices)
      for (const SnapshotSegment& segment : device->segments()) put(*device, segment);
    out_.end();
    out_.key("device_traces");
    out_.begin_list();
    int next = -1;  // the host is the first
    for (const auto& device : devices) {
      for (; next < device->device(); ++next) {
        out_.begin_list();
        out_.end();
      }
      put_history(*device);
      ++next;
    }
    out_.end();
    put_settings();
    out_.key("external_annotations");
    out_.begin_list();
    for (const auto& device : devices) put_steps(*device);
    out_.end();
    out_.end();
    out_.finish();
  }

 private:
  static int index(const SnapshotDevice& device) { return device.device() + 1; }
  void note_addresses(const SnapshotDevice& device) {
    for (const SnapshotSegment& segment : device.segments()) addresses_.note(segment.address);
    device.history().for_each(
        [this](const SnapshotEntry& entry) { addresses_.note(entry.address); });
  }
  [[nodiscard]] std::int64_t microseconds(std::uint64_t time_ns) const {
    const std::uint64_t wall = to_.file.process().start_wall_ns;
    return static_cast<std::int64_t>((time_ns - to_.lives.start_ns + wall) / 1000);
  }

  void put(const SnapshotDevice& device, const SnapshotSegment& segment) {
    using State = SnapshotTile::State;
    std::int64_t allocated = 0;
    std::int64_t active = 0;
    std::int64_t requested = 0;
    for (const SnapshotTile& tile : segment.tiles) {
      if (tile.state == State::kAllocated) allocated = trace::wrapping_add(allocated, tile.bytes);
      if (tile.state != State::kFree) active = trace::wrapping_add(active, tile.bytes);
      requested = trace::wrapping_add(requested, tile.requested);
    }
    out_.begin_dict();
    out_.put("device", index(device));
    out_.put("address", addresses_.shown(segment.address));
    out_.put("total_size", segment.bytes);
    out_.put("allocated_size", allocated);
    out_.put("active_size", active);
    out_.put("requested_size", requested);
    out_.put("stream",
             static_cast<std::int64_t>(segment.tiles.empty() ? 0 : segment.tiles.front().stream));
    out_.put("segment_type", "large");
    out_.key("segment_pool_id");
    out_.begin_list();
    out_.integer(0);
    out_.integer(0);
    out_.end();
    out_.key("is_expandable");
    out_.boolean(false);
    out_.key("frames");
    put_frames({});
    out_.key("blocks");
    out_.begin_list();
    for (const SnapshotTile& tile : segment.tiles) put(tile);
    out_.end();
    out_.end();
  }
  void put(const SnapshotTile& tile) {
    constexpr std::array<std::string_view, 3> kStates{"active_allocated", "active_pending_free",
                                                      "inactive"};
    out_.begin_dict();
    out_.put("address", addresses_.shown(tile.address));
    out_.put("size", tile.bytes);
    out_.put("requested_size", tile.requested);
    out_.put("state", kStates[static_cast<std::size_t>(tile.state)]);
    if (tile.state == SnapshotTile::State::kAllocated)
      out_.put("category", category(tile.of, tile.place));
    out_.key("frames");
    put_frames(tile.place);
    out_.end();
  }
  void put_history(const SnapshotDevice& device) {
    out_.begin_list();
    device.history().for_each([&](const SnapshotEntry& entry) {
      switch (entry.action) {
        case SnapshotAction::kAlloc:
        case SnapshotAction::kFree:
          if (!to_.is_of_class(entry.of)) return;
          if (entry.action == SnapshotAction::kAlloc) return put_entry("alloc", entry);
          put_entry("free_requested", entry);
          return put_entry("free_completed", entry);
        case SnapshotAction::kSegmentAlloc:
          return put_entry("segment_alloc", entry);
        case SnapshotAction::kSegmentFree:
          return put_entry("segment_free", entry);
        case SnapshotAction::kOutOfMemory:
          return put_entry("oom", entry);
      }
    });
    // The viewer throws unless an entry has the category `unknown`: this one has, whatever the
    // groups.
    if (device.taken()) {
      SnapshotEntry last;
      last.time_ns = device.time_ns();
      if (!device.segments().empty()) last.address = device.segments().front().address;
      put_entry("snapshot", last, class_category(last.of));
    }
    out_.end();
  }
  void put_entry(std::string_view action, const SnapshotEntry& entry) {
    put_entry(action, entry, category(entry.of, entry.place));
  }
  void put_entry(std::string_view action, const SnapshotEntry& entry, std::string_view category) {
    const bool out_of_memory = entry.action == SnapshotAction::kOutOfMemory;
    out_.begin_dict();
    out_.put("action", action);
    // How much a device had left is in no trace.
    if (out_of_memory) out_.put("device_free", std::int64_t{0});
    if (!out_of_memory) out_.put("addr", addresses_.shown(entry.address));
    out_.put("size", entry.bytes);
    out_.put("stream", static_cast<std::int64_t>(entry.stream));
    out_.put("time_us", microseconds(entry.time_ns));
    out_.put("category", category);
    out_.key("frames");
    put_frames(entry.place);
    out_.end();
  }
  // The operator, then the innermost frame. A place without either has none.
  void put_frames(trace::Origin place) {
    constexpr std::uint64_t kOperators = std::uint64_t{1} << 61;
    const std::uint64_t id = std::uint64_t{place.op} << 32 | place.stack;
    if (out_.recall(id)) return;
    out_.begin_list();
    if (place.op != 0) put_frame(kOperators | place.op, definitions_.string(place.op), "??", 0);
    definitions_.walk(place.stack, [&](std::uint32_t frame) {
      put_frame(frame);
      return true;
    });
    out_.end();
    out_.remember(id);
  }
  void put_frame(std::uint64_t id, std::string_view name, std::string_view file,
                 std::uint64_t line) {
    if (out_.recall(id)) return;
    out_.begin_dict();
    out_.key("name");
    out_.text(name);
    out_.key("filename");
    out_.text(file);
    out_.put("line", static_cast<std::int64_t>(std::min<std::uint64_t>(line, 1u << 30)));
    out_.end();
    out_.remember(id);
  }
  void put_frame(std::uint32_t id) {
    constexpr std::uint64_t kFrames = std::uint64_t{1} << 62;
    const trace::Frame* const frame = definitions_.frame(id);
    if (frame != nullptr && frame->kind == trace::FrameKind::kPython)
      return put_frame(kFrames | id, definitions_.string(frame->name),
                       definitions_.string(frame->file), frame->where);
    put_frame(kFrames | id, to_.lines.text(id), "??", 0);
  }
  // The key of the viewer's colours: the class, or the user's group.
  [[nodiscard]] std::string_view category(trace::ByteClass of, trace::Origin place) {
    if (to_.request.groups.empty()) return class_category(of);
    return groups_.names()[groups_.part_of(place)];
  }
  void put_settings() {
    const trace::Process& process = to_.file.process();
    out_.key("allocator_settings");
    out_.begin_dict();
    out_.put("PLEAT_CONF", process.options);
    out_.put("pleat", process.pleat);
    out_.put("torch", process.torch);
    out_.end();
  }
  void put_steps(const SnapshotDevice& device) {
    bool any = false;
    std::uint64_t first_ns = 0;
    device.history().for_each([&](const SnapshotEntry& entry) {
      if (!std::exchange(any, true)) first_ns = entry.time_ns;
    });
    if (!any || !device.taken()) return;
    const std::vector<trace::Step>& steps = to_.lives.steps;
    for (std::size_t i = 0; i < steps.size() && steps[i].time_ns <= device.time_ns(); ++i) {
      const bool ends = i + 1 < steps.size() && steps[i + 1].time_ns <= device.time_ns();
      const std::uint64_t end_ns = ends ? steps[i + 1].time_ns : device.time_ns();
      if (end_ns < first_ns) continue;
      const std::string name = fmt::format("step {}", steps[i].number);
      for (const auto& [stage, time_ns] :
           {std::pair("START", std::max(steps[i].time_ns, first_ns)), std::pair("END", end_ns)}) {
        out_.begin_dict();
        out_.key("name");
        out_.text(name);
        out_.put("stage", std::string_view(stage));
        out_.put("device", index(device));
        out_.put("time_us", microseconds(time_ns));
        out_.end();
      }
    }
  }

  const TraceExport& to_;
  const trace::Definitions& definitions_;
  ValueWriter& out_;
  trace::Groups groups_;
  Addresses addresses_;
};

}  // namespace

void export_torch_snapshot(const TraceExport& to) {
  std::vector<std::unique_ptr<SnapshotDevice>> devices;
  for (const auto& [index, lives] : to.lives.devices)
    if (to.wants(index)) devices.push_back(std::make_unique<SnapshotDevice>(to, lives));
  to.for_each([](const PleatTraceEvent& /*event*/, const trace::Ledger& /*ledger*/) {},
              [&](const PleatTraceEvent& event, const trace::Ledger& ledger) {
                bool goes_on = false;
                for (const auto& device : devices) goes_on |= device->take(event, ledger);
                return goes_on;
              });
  const bool any = std::any_of(devices.begin(), devices.end(),
                               [](const auto& device) { return device->taken(); });
  if (!any) {
    const char* why = "nothing was live";
    if (to.request.at.kind == Moment::Kind::kOutOfMemory) why = "no device ran out of memory";
    if (to.request.at.kind == Moment::Kind::kDump) why = "nobody asked for a look";
    to.out.give_up(fmt::format("{}: {}", shown_path(to.request.file), why));
    return;
  }
  const std::unique_ptr<ValueWriter> writer = to.request.format == ExportFormat::kTorchJson
                                                  ? make_json_writer(to.out)
                                                  : make_pickle_writer(to.out);
  TorchSnapshot(to, *writer).write(devices);
}

}  // namespace pleat::cli
