// Events one by one, as CSV and as lines of JSON. Only live blocks are held.
#include <fmt/format.h>

#include <array>
#include <optional>
#include <unordered_map>

#include "formats.h"
#include "tools/pleat/trace_command/text.h"

namespace pleat::cli {

std::string_view event_name(std::uint8_t kind) {
  constexpr std::array<std::string_view, 25> kMemory{"?",
                                                     "segment_reserve",
                                                     "segment_release",
                                                     "pages_release",
                                                     "allocate",
                                                     "free",
                                                     "shrink",
                                                     "chunk_allocate",
                                                     "chunk_free",
                                                     "payload_allocate",
                                                     "payload_shrink",
                                                     "payload_free",
                                                     "tag",
                                                     "release",
                                                     "wait",
                                                     "hold",
                                                     "keep",
                                                     "encode",
                                                     "restore",
                                                     "restored_free",
                                                     "drop",
                                                     "out_of_memory",
                                                     "other",
                                                     "pages_touch",
                                                     "pages_move"};
  constexpr std::array<std::string_view, 10> kMarks{"phase", "node", "label",  "present", "decided",
                                                    "dump",  "plan", "module", "left",    "proved"};
  constexpr std::array<std::string_view, 3> kOwn{"resident", "small", "lost"};
  if (kind < kMemory.size()) return kMemory[kind];
  if (kind >= PLEAT_TRACE_PHASE && kind < PLEAT_TRACE_PHASE + kMarks.size())
    return kMarks[kind - PLEAT_TRACE_PHASE];
  if (kind >= PLEAT_TRACE_RESIDENT && kind < PLEAT_TRACE_RESIDENT + kOwn.size())
    return kOwn[kind - PLEAT_TRACE_RESIDENT];
  return "?";
}

namespace {

using trace::ByteClass;
using trace::Ledger;

// An event and its data. nullopt: the event has no such value.
struct Row {
  const PleatTraceEvent* event = nullptr;
  double seconds = 0;
  trace::Origin place;
  std::optional<std::uint64_t> step, bytes;
  std::optional<int> device;
  std::uint64_t block = 0, record = 0;
  std::optional<ByteClass> of;
  std::optional<std::int64_t> live, reserved;
};

class Rows {
 public:
  explicit Rows(const TraceExport& to) : to_(to) {}

  // Calls write(row) for each event that the filter leaves.
  template <class Write>
  void for_each(Write&& write) {
    About ended;
    to_.for_each(
        [&](const PleatTraceEvent& event, const Ledger& ledger) {
          const bool ends = event.kind == PLEAT_TRACE_FREE || event.kind == PLEAT_TRACE_DROP;
          ended = ends ? about(event, ledger) : About{};
        },
        [&](const PleatTraceEvent& event, const Ledger& ledger) {
          if (!wants(event)) return;
          const Row row = row_of(event, ledger, ended);
          if (to_.passes(static_cast<std::int64_t>(event.bytes), row.place.op, ledger.step()) &&
              (!to_.filter.of_class || row.of == to_.filter.of_class)) {
            write(row);
          }
        });
  }

 private:
  // Data of the event's block and record.
  struct About {
    std::optional<ByteClass> of;
    trace::Origin place;
  };
  static About about(const PleatTraceEvent& event, const Ledger& ledger) {
    About found;
    const bool in_chunk =
        (event.kind >= PLEAT_TRACE_PAYLOAD_ALLOCATE && event.kind <= PLEAT_TRACE_PAYLOAD_FREE) ||
        (event.kind == PLEAT_TRACE_ENCODE && event.reason == PLEAT_TRACE_PLACE_CHUNK);
    if (in_chunk) found.of = ByteClass::kPayloads;
    if (event.block != 0 && !in_chunk) {
      if (const auto block = ledger.block(event.device, event.block)) {
        found.of = block->of;
        found.place = block->place();
      }
    }
    if (event.record != 0)
      if (const trace::LiveRecord* const record = ledger.record(event.device, event.record))
        found.place = record->origin;
    return found;
  }
  // Of a device; else of the process or of a thread.
  static bool has_device(const PleatTraceEvent& event) {
    switch (event.kind) {
      case PLEAT_TRACE_DECIDED:
      case PLEAT_TRACE_PLAN:
      case PLEAT_TRACE_LEFT:
      case PLEAT_TRACE_PROVED:
        return true;
      default:
        return trace::changes_sums(event.kind);
    }
  }
  [[nodiscard]] bool wants(const PleatTraceEvent& event) const {
    const bool of_device = has_device(event);
    if (of_device && !to_.wants(event.device)) return false;
    if (!to_.filter.holds(event.time_ns)) return false;
    return to_.filter.least_bytes == 0 || of_device;
  }
  [[nodiscard]] Row row_of(const PleatTraceEvent& event, const Ledger& ledger,
                           const About& ended) const {
    Row row;
    row.event = &event;
    row.place = {event.op, event.stack};
    row.seconds = to_.lives.seconds(event.time_ns);
    row.step = to_.lives.step_number(ledger.step());
    if (event.kind != PLEAT_TRACE_PHASE && event.kind != PLEAT_TRACE_NODE) row.bytes = event.bytes;
    if (!has_device(event)) return row;
    row.device = event.device;
    row.block = event.block;
    row.record = event.record;
    const About found = ended.of || ended.place.op != 0 ? ended : about(event, ledger);
    row.of = found.of;
    if (row.place.op == 0) row.place.op = found.place.op;
    if (row.place.stack == 0) row.place.stack = found.place.stack;
    const trace::Totals& totals = ledger.totals(event.device);
    row.live = totals.live();
    row.reserved = totals.reserved();
    return row;
  }

  const TraceExport& to_;
};

// ---- CSV ----------------------------------------------------------------------------------------

void put_place(const TraceExport& to, std::uint32_t frame_id) {
  const trace::Definitions& definitions = to.file.definitions();
  const trace::Frame* const frame = definitions.frame(frame_id);
  if (frame == nullptr) return to.out.put(",");
  if (frame->kind == trace::FrameKind::kPython) {
    put_csv_field(to.out, definitions.string(frame->file));
    return to.out.put(fmt::format(",{}", frame->where));
  }
  const trace::Module* const module = definitions.module(frame->name);
  put_csv_field(to.out, module == nullptr ? "?" : definitions.text(module->path));
  to.out.put(fmt::format(",{:#x}", frame->where));
}

template <class Number>
void put_field(TraceOutput& out, const std::optional<Number>& number) {
  if (number) out.put(fmt::format_int(*number).c_str());
  out.put(',');
}

std::optional<std::uint64_t> unless_0(std::uint64_t id) {
  return id == 0 ? std::nullopt : std::optional(id);
}

void put_csv_row(const TraceExport& to, const Row& row) {
  TraceOutput& out = to.out;
  out.put(fmt::format("{:.9f},", row.seconds));
  put_field(out, row.step);
  out.put(trace::phase_name(row.event->phase));
  out.put(',');
  out.put(event_name(row.event->kind));
  out.put(',');
  if (row.device) out.put(device_text(*row.device));
  out.put(',');
  put_field(out, unless_0(row.block));
  put_field(out, unless_0(row.record));
  put_field(out, row.bytes);
  if (row.of) out.put(trace::class_name(*row.of));
  out.put(',');
  put_csv_field(out, to.file.definitions().string(row.place.op));
  out.put(',');
  put_place(to, to.lines.frame_of(row.place.stack));
  out.put(',');
  put_field(out, row.live);
  if (row.reserved) out.put(fmt::format_int(*row.reserved).c_str());
  out.put("\r\n");
}

// ---- lines of JSON ------------------------------------------------------------------------------

class JsonLines {
 public:
  explicit JsonLines(const TraceExport& to) : to_(to) {}

  void put(const Row& row) {
    TraceOutput& out = to_.out;
    const trace::Frame* const frame =
        to_.file.definitions().frame(to_.lines.frame_of(row.place.stack));
    out.put(fmt::format("{{\"time_s\":{:.9f},\"step\":", row.seconds));
    put_number(row.step);
    key("phase", trace::phase_name(row.event->phase));
    key("kind", event_name(row.event->kind));
    key("device", row.device ? device_text(*row.device) : std::string());
    number("block", unless_0(row.block));
    number("record", unless_0(row.record));
    number("bytes", row.bytes);
    key("class", row.of ? trace::class_name(*row.of) : std::string_view());
    key("op", to_.file.definitions().string(row.place.op));
    const bool python = frame != nullptr && frame->kind == trace::FrameKind::kPython;
    key("file", python ? to_.file.definitions().string(frame->file) : std::string_view());
    number("line", python ? std::optional(frame->where) : std::nullopt);
    number("live", row.live);
    number("reserved", row.reserved);
    put_decision(*row.event);
    out.put(",\"stack\":[");
    out.put(stack(row.place.stack));
    out.put("]}\n");
  }

 private:
  static constexpr std::size_t kMostHeldBytes = 32u << 20;

  // Fields that only these events have.
  void put_decision(const PleatTraceEvent& event) {
    if (event.kind == PLEAT_TRACE_DECIDED) {
      number("bits", std::optional<unsigned>(event.reason));
      number("noisy_elements", std::optional(event.key));
    } else if (event.kind == PLEAT_TRACE_PLAN) {
      constexpr std::array<std::string_view, 3> kPlans{"coded", "recomputed", "raw"};
      key("plan", event.reason < kPlans.size() ? kPlans[event.reason] : "?");
      number("payload_bytes", std::optional(event.key));
    } else if (event.kind == PLEAT_TRACE_ENCODE || event.kind == PLEAT_TRACE_HOLD ||
               event.kind == PLEAT_TRACE_RESTORE) {
      number("took_ns", std::optional(event.key));
    }
  }
  template <class Number>
  void put_number(const std::optional<Number>& value) {
    if (value) {
      to_.out.put(fmt::format_int(*value).c_str());
    } else {
      to_.out.put("null");
    }
  }
  template <class Number>
  void number(std::string_view name, const std::optional<Number>& value) {
    to_.out.put(fmt::format(",\"{}\":", name));
    put_number(value);
  }
  // An empty text is null.
  void key(std::string_view name, std::string_view text) {
    to_.out.put(fmt::format(",\"{}\":", name));
    if (text.empty()) return to_.out.put("null");
    put_json_text(to_.out, text);
  }
  // The innermost frame first.
  const std::string& stack(std::uint32_t id) {
    if (const auto known = stacks_.find(id); known != stacks_.end()) return known->second;
    std::string text;
    to_.file.definitions().walk(id, [&](std::uint32_t frame) {
      if (!text.empty()) text += ',';
      text += json_text(to_.lines.long_text(frame));
      return true;
    });
    if (held_bytes_ > kMostHeldBytes) {
      stacks_.clear();
      held_bytes_ = 0;
    }
    held_bytes_ += text.size();
    return stacks_[id] = std::move(text);
  }

  const TraceExport& to_;
  std::unordered_map<std::uint32_t, std::string> stacks_;
  std::size_t held_bytes_ = 0;
};

}  // namespace

void export_csv(const TraceExport& to) {
  to.out.put(
      "time_s,step,phase,kind,device,block,record,bytes,class,op,file,line,live,reserved\r\n");
  Rows(to).for_each([&](const Row& row) { put_csv_row(to, row); });
}

void export_json_lines(const TraceExport& to) {
  JsonLines lines(to);
  Rows(to).for_each([&](const Row& row) { lines.put(row); });
}

}  // namespace pleat::cli
