// Bytes by the stack they belong to: speedscope's files and collapsed stacks. A stack goes from the
// program's root to the operator. Held are sums by stack, so few.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "formats.h"
#include "interpose/trace/wrapping.h"
#include "tools/pleat/trace/replay.h"
#include "tools/pleat/trace_command/text.h"

namespace pleat::cli {
namespace {

using trace::ByteClass;
using trace::Ledger;
using trace::LiveEntry;
using trace::Origin;

struct StackSum {
  std::uint32_t op = 0;
  std::uint32_t stack = 0;
  std::int64_t bytes = 0;
};

// Where no operator is known, the class stands for it.
constexpr std::uint32_t class_as_op(ByteClass of) {
  return trace::kNone - 1 - static_cast<std::uint32_t>(of);
}

class StackSums {
 public:
  void add(Origin place, ByteClass of, std::int64_t bytes) {
    if (bytes <= 0) return;
    const std::uint32_t op = place.op != 0 ? place.op : class_as_op(of);
    std::int64_t& sum = sums_[std::uint64_t{op} << 32 | place.stack];
    sum = trace::wrapping_add(sum, bytes);
  }
  // The largest first.
  [[nodiscard]] std::vector<StackSum> sorted() const {
    std::vector<StackSum> sums;
    sums.reserve(sums_.size());
    for (const auto& [key, bytes] : sums_)
      if (bytes > 0)
        sums.push_back(
            {static_cast<std::uint32_t>(key >> 32), static_cast<std::uint32_t>(key), bytes});
    std::sort(sums.begin(), sums.end(), [](const StackSum& a, const StackSum& b) {
      return std::tie(b.bytes, a.op, a.stack) < std::tie(a.bytes, b.op, b.stack);
    });
    return sums;
  }

 private:
  std::unordered_map<std::uint64_t, std::int64_t> sums_;
};

constexpr std::array<const char*, 4> kWhats{"peak", "leaked", "saved", "allocated"};

struct DeviceStacks {
  const trace::DeviceLives* lives = nullptr;
  std::array<StackSums, kWhats.size()> sums;  // by StackBytes

  StackSums& of(StackBytes what) { return sums[static_cast<std::size_t>(what)]; }
};

// Of stacks whose frames read the same, the first stands for all.
class SameStacks {
 public:
  SameStacks(const trace::Definitions& definitions, trace::Lines& lines)
      : first_(definitions.last_stack() + std::size_t{1}) {
    std::unordered_map<std::uint64_t, std::uint32_t> stacks;
    for (std::uint32_t id = 1; id < first_.size(); ++id) {
      const trace::Stack* const stack = definitions.stack(id);
      first_[id] = id;
      if (stack == nullptr) continue;
      const std::uint64_t text =
          std::uint64_t{first_[stack->caller]} << 32 | lines.first_like(stack->frame);
      first_[id] = stacks.try_emplace(text, id).first->second;
    }
  }
  [[nodiscard]] std::uint32_t first(std::uint32_t stack) const {
    return stack < first_.size() ? first_[stack] : stack;
  }

 private:
  std::vector<std::uint32_t> first_;  // by stack
};

// ---- what bytes belong to which stack -----------------------------------------------------------

class StackCollector {
 public:
  explicit StackCollector(const TraceExport& to) : to_(to), same_(to.file.definitions(), to.lines) {
    for (const auto& [index, lives] : to.lives.devices)
      if (to.wants(index)) devices_[index].lives = &lives;
  }

  std::map<int, DeviceStacks> collect() {
    to_.for_each([](const PleatTraceEvent& /*event*/, const Ledger& /*ledger*/) {},
                 [this](const PleatTraceEvent& event, const Ledger& ledger) {
                   take_moment(ledger);
                   if (event.kind == PLEAT_TRACE_TAG || event.kind == PLEAT_TRACE_ALLOCATE)
                     take_event(event, ledger);
                 });
    return std::move(devices_);
  }

 private:
  void add(StackSums& sums, const LiveEntry& entry) const {
    const Origin place = entry.place();
    if (!to_.is_of_class(entry.of) || !to_.passes(entry.bytes, place.op, entry.step)) return;
    sums.add({place.op, same_.first(place.stack)}, entry.of, entry.bytes);
  }
  void take_moment(const Ledger& ledger) {
    const std::uint64_t number = ledger.events() - 1;
    const std::vector<trace::Step>& steps = to_.lives.steps;
    // A step ends where the next one begins.
    const bool ends = steps.size() >= trace::kLeastSteps && number == steps.back().event;
    for (auto& [index, device] : devices_) {
      const trace::Peak& peak = device.lives->peaks[PLEAT_TRACE_REQUESTED];
      if (peak.bytes > 0 && number == peak.event)
        for (const LiveEntry& entry : ledger.live(index)) add(device.of(StackBytes::kPeak), entry);
      if (!ends) continue;
      for (const LiveEntry& entry : ledger.live(index))
        if (entry.step >= trace::kFirstGrowthStep && entry.step + std::size_t{2} < steps.size())
          add(device.of(StackBytes::kLeaked), entry);
    }
  }
  void take_event(const PleatTraceEvent& event, const Ledger& ledger) {
    const auto device = devices_.find(event.device);
    if (device == devices_.end() || !to_.filter.holds(event.time_ns)) return;
    LiveEntry entry;
    entry.bytes = static_cast<std::int64_t>(event.bytes);
    entry.step = ledger.step();
    entry.born = {event.op, event.stack};
    if (event.kind == PLEAT_TRACE_TAG) {
      entry.of = ByteClass::kSavedRaw;
      return add(device->second.of(StackBytes::kSaved), entry);
    }
    if (const auto block = ledger.block(event.device, event.block)) entry = *block;
    add(device->second.of(StackBytes::kAllocated), entry);
  }

  const TraceExport& to_;
  const SameStacks same_;
  std::map<int, DeviceStacks> devices_;
};

// ---- frames -------------------------------------------------------------------------------------

std::string op_name(const trace::Definitions& definitions, std::uint32_t op) {
  constexpr std::uint32_t kFirst = class_as_op(static_cast<ByteClass>(trace::kByteClasses - 1));
  if (op < kFirst) return std::string(definitions.string(op));
  return fmt::format("({})",
                     trace::class_name(static_cast<ByteClass>(class_as_op(ByteClass{}) - op)));
}

// From the root; empty: there is no stack.
void frames_of(const trace::Definitions& definitions, std::uint32_t stack,
               std::vector<std::uint32_t>& frames) {
  frames.clear();
  definitions.walk(stack, [&](std::uint32_t frame) {
    frames.push_back(frame);
    return true;
  });
  std::reverse(frames.begin(), frames.end());
}

constexpr const char* kNoStack = "(no stack)";

class Speedscope {
 public:
  explicit Speedscope(const TraceExport& to) : to_(to), definitions_(to.file.definitions()) {}

  void write(std::map<int, DeviceStacks> devices) {
    // Frames stand before the profiles that refer to them.
    for (auto& [index, device] : devices)
      for (std::size_t what = 0; what < kWhats.size(); ++what)
        add(devices.size() > 1 ? device_text(index) + ' ' + kWhats[what] : kWhats[what],
            device.sums[what].sorted());
    to_.out.put(R"({"$schema":"https://www.speedscope.app/file-format-schema.json",)");
    to_.out.put("\"exporter\":\"pleat\",\"name\":");
    put_json_text(to_.out, to_.request.file);
    to_.out.put(",\"activeProfileIndex\":0,\"shared\":{\"frames\":[");
    for (std::size_t i = 0; i < frames_.size(); ++i) {
      to_.out.put(i == 0 ? "\n" : ",\n");
      put_frame(frames_[i]);
    }
    to_.out.put("\n]},\"profiles\":[");
    for (std::size_t i = 0; i < profiles_.size(); ++i) {
      to_.out.put(i == 0 ? "\n" : ",\n");
      put(profiles_[i]);
    }
    to_.out.put("\n]}\n");
  }

 private:
  struct Profile {
    std::string name;
    std::vector<StackSum> sums;
  };
  static constexpr std::uint64_t kOperators = std::uint64_t{1} << 32;

  // Keys: a frame's id, 0 for no stack, an operator above kOperators.
  std::size_t number(std::uint64_t key) {
    const auto [it, is_new] = numbers_.try_emplace(key, frames_.size());
    if (is_new) frames_.push_back(key);
    return it->second;
  }
  void add(std::string name, std::vector<StackSum> sums) {
    for (const StackSum& sum : sums) visit(sum, [](std::size_t /*number*/) {});
    profiles_.push_back({std::move(name), std::move(sums)});
  }
  template <class Visit>
  void visit(const StackSum& sum, Visit&& visit) {
    frames_of(definitions_, sum.stack, stack_);
    if (stack_.empty()) visit(number(0));
    for (const std::uint32_t frame : stack_) visit(number(frame));
    visit(number(kOperators | sum.op));
  }
  void put_frame(std::uint64_t key) {
    to_.out.put("{\"name\":");
    const auto id = static_cast<std::uint32_t>(key);
    const trace::Frame* const frame = key < kOperators ? definitions_.frame(id) : nullptr;
    if (key >= kOperators) {
      put_json_text(to_.out, op_name(definitions_, id));
    } else if (frame != nullptr && frame->kind == trace::FrameKind::kPython) {
      put_json_text(to_.out, definitions_.string(frame->name));
      to_.out.put(",\"file\":");
      put_json_text(to_.out, definitions_.string(frame->file));
      if (frame->where > 0) to_.out.put(fmt::format(",\"line\":{}", frame->where));
    } else {
      put_json_text(to_.out, key == 0 ? kNoStack : to_.lines.text(id));
    }
    to_.out.put('}');
  }
  void put(const Profile& profile) {
    std::int64_t all = 0;
    for (const StackSum& sum : profile.sums) all = trace::wrapping_add(all, sum.bytes);
    to_.out.put("{\"type\":\"sampled\",\"name\":");
    put_json_text(to_.out, profile.name);
    to_.out.put(
        fmt::format(",\"unit\":\"bytes\",\"startValue\":0,\"endValue\":{},\"samples\":[", all));
    for (std::size_t i = 0; i < profile.sums.size(); ++i) {
      const char* before = i == 0 ? "[" : ",\n[";
      visit(profile.sums[i], [&](std::size_t number) {
        to_.out.put(fmt::format("{}{}", before, number));
        before = ",";
      });
      to_.out.put(']');
    }
    to_.out.put("],\"weights\":[");
    for (std::size_t i = 0; i < profile.sums.size(); ++i)
      to_.out.put(fmt::format("{}{}", i == 0 ? "" : ",", profile.sums[i].bytes));
    to_.out.put("]}");
  }

  const TraceExport& to_;
  const trace::Definitions& definitions_;
  std::unordered_map<std::uint64_t, std::size_t> numbers_;
  std::vector<std::uint64_t> frames_;
  std::vector<Profile> profiles_;
  std::vector<std::uint32_t> stack_;
};

// A ';' ends a frame and a newline a stack.
std::string collapsed_name(std::string_view text) {
  std::string name = valid_utf8(text);
  for (char& c : name) {
    if (c == ';') c = ',';
    if (static_cast<unsigned char>(c) < ' ') c = ' ';
  }
  return name.empty() ? "?" : name;
}

}  // namespace

void export_speedscope(const TraceExport& to) {
  Speedscope(to).write(StackCollector(to).collect());
}

void export_collapsed(const TraceExport& to) {
  const trace::Definitions& definitions = to.file.definitions();
  std::map<int, DeviceStacks> devices = StackCollector(to).collect();
  std::vector<std::uint32_t> frames;
  for (auto& [index, device] : devices) {
    for (const StackSum& sum : device.of(to.request.what).sorted()) {
      if (devices.size() > 1) to.out.put(device_text(index) + ';');
      frames_of(definitions, sum.stack, frames);
      if (frames.empty()) to.out.put(fmt::format("{};", kNoStack));
      for (const std::uint32_t frame : frames)
        to.out.put(collapsed_name(to.lines.text(frame)) + ';');
      to.out.put(fmt::format("{} {}\n", collapsed_name(op_name(definitions, sum.op)), sum.bytes));
    }
  }
}

}  // namespace pleat::cli
