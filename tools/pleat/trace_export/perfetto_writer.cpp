#include "perfetto_writer.h"

#include <fmt/format.h>

#include <array>

namespace pleat::cli {
namespace {

constexpr std::uint64_t kMonotonic = 3, kRealtime = 1;  // of BuiltinClock
constexpr std::uint64_t kStateCleared = 1, kNeedsState = 2;

// Names of annotations, by iid from 1.
enum Annotation : unsigned { kOp, kLine, kBytes, kPayload, kClass, kStep, kBlock, kRecord };
constexpr std::array<std::string_view, 8> kAnnotations{"op",    "line", "bytes", "payload bytes",
                                                       "class", "step", "block", "record"};

// Interned values: classes from 1, lines behind them, operators behind all lines.
constexpr std::uint64_t kFirstLine = 1u << 8;
constexpr std::uint64_t kFirstOp = std::uint64_t{1} << 33;

constexpr unsigned kPacketTrackEvent = 11, kPacketInterned = 12, kPacketFlags = 13;
constexpr unsigned kInternedEventNames = 2, kInternedAnnotations = 3, kInternedValues = 29;

ProtoMessage interned_text(std::uint64_t iid, std::string_view text) {
  ProtoMessage message;
  message.number(1, iid);
  message.text(2, valid_utf8(text));
  return message;
}

}  // namespace

PerfettoPlace only_place(const trace::Process& process) {
  return {.pid = process.pid,
          .name = process.rank >= 0 ? fmt::format("rank {}", process.rank)
                                    : fmt::format("process {}", process.pid)};
}

PerfettoWriter::PerfettoWriter(TraceOutput& out, const trace::Definitions& definitions,
                               trace::Lines& lines, PerfettoPlace place)
    : out_(out),
      definitions_(definitions),
      lines_(lines),
      place_(std::move(place)),
      known_ops_(definitions.last_string() + std::size_t{1}),
      known_lines_(definitions.last_frame() + std::size_t{1}) {}

void PerfettoWriter::put_packet(ProtoMessage& packet) {
  packet.number(10, place_.number + 1);  // each process has a sequence
  ProtoMessage trace;
  trace.message(1, packet);
  out_.put(trace.bytes());
}

void PerfettoWriter::put_clocks(const trace::Process& process, std::uint64_t start_ns) {
  ProtoMessage clocks;
  const auto clock = [&clocks](std::uint64_t id, std::uint64_t time_ns) {
    ProtoMessage one;
    one.number(1, id);
    one.number(2, time_ns);
    clocks.message(1, one);
  };
  clock(kMonotonic, start_ns);
  if (process.start_wall_ns != 0) clock(kRealtime, process.start_wall_ns);
  clocks.number(2, kMonotonic);  // of the whole trace
  ProtoMessage packet;
  packet.number(8, start_ns);
  packet.number(58, kMonotonic);
  packet.message(6, clocks);
  put_packet(packet);
}

void PerfettoWriter::begin(const trace::Process& process, std::uint64_t start_ns) {
  if (place_.number == 0 && place_.part == 0) put_clocks(process, start_ns + place_.shift_ns);
  ProtoMessage defaults;
  defaults.number(58, kMonotonic);
  ProtoMessage interned;
  for (std::size_t i = 0; i < kAnnotations.size(); ++i)
    interned.message(kInternedAnnotations, interned_text(i + 1, kAnnotations[i]));
  for (std::size_t i = 0; i < trace::kByteClasses; ++i)
    interned.message(kInternedValues, interned_text(i + 1, trace::kClassNames[i]));
  ProtoMessage state;
  state.number(kPacketFlags, kStateCleared);
  if (place_.part == 0) state.number(87, 1);  // the first of its sequence
  state.message(59, defaults);
  state.message(kPacketInterned, interned);
  put_packet(state);
  ProtoMessage described;
  described.number(1, place_.pid & 0x7fffffff);
  described.text(6, valid_utf8(place_.name));
  ProtoMessage descriptor;
  descriptor.message(3, described);
  put_track(kProcess, descriptor);
}

// ---- tracks -------------------------------------------------------------------------------------

void PerfettoWriter::put_track(Track track, const ProtoMessage& what) {
  if (place_.described != nullptr && !place_.described->insert(track).second) return;
  ProtoMessage descriptor;
  descriptor.number(1, among_all(track));
  if (track != kProcess) descriptor.number(5, among_all(kProcess));
  descriptor.append(what);
  ProtoMessage packet;
  packet.message(60, descriptor);
  put_packet(packet);
}

void PerfettoWriter::thread(Track track, std::uint32_t tid, bool is_main) {
  ProtoMessage described;
  described.number(1, place_.pid & 0x7fffffff);
  described.number(2, tid);
  described.text(5, is_main ? "main thread" : fmt::format("thread {}", tid));
  ProtoMessage descriptor;
  descriptor.message(4, described);
  put_track(track, descriptor);
}

void PerfettoWriter::counter(Track track, std::string_view name, std::string_view axis) {
  constexpr std::uint64_t kBytes = 3;  // of CounterDescriptor::Unit
  ProtoMessage described;
  described.number(3, kBytes);
  described.text(7, axis);
  ProtoMessage descriptor;
  descriptor.text(2, name);
  descriptor.message(8, described);
  put_track(track, descriptor);
}

void PerfettoWriter::lane(Track track, std::string_view name) {
  ProtoMessage descriptor;
  descriptor.text(2, name);
  put_track(track, descriptor);
}

// ---- events -------------------------------------------------------------------------------------

void PerfettoWriter::count(Track track, std::uint64_t time_ns, std::int64_t value) {
  ProtoMessage event;
  event.number(9, kCounter);
  event.number(11, among_all(track));
  event.number(30, static_cast<std::uint64_t>(value));
  ProtoMessage packet;
  packet.number(8, time_ns + place_.shift_ns);
  packet.number(kPacketFlags, kNeedsState);
  packet.message(kPacketTrackEvent, event);
  put_packet(packet);
}

void PerfettoWriter::intern(ProtoMessage& interned, unsigned field, std::vector<bool>& known,
                            std::size_t id, std::uint64_t iid, std::string_view text) const {
  if (known[id]) return;
  known[id] = true;
  interned.message(field, interned_text(iid, text));
}

void PerfettoWriter::put_event(Type type, Track track, std::uint64_t time_ns,
                               const Details* details) {
  ProtoMessage event;
  ProtoMessage interned;
  event.number(9, type);
  event.number(11, among_all(track));
  if (details != nullptr) {
    const bool has_op = details->op != 0 && details->op < known_ops_.size();
    if (!details->name.empty() || !has_op) {
      event.text(23, details->name.empty() ? "?" : valid_utf8(details->name));
    } else {
      const std::uint64_t iid = kFirstOp + details->op;
      intern(interned, kInternedEventNames, known_ops_, details->op, iid,
             definitions_.string(details->op));
      event.number(10, iid);
    }
    const auto annotate = [&](Annotation name, unsigned field, auto value) {
      ProtoMessage message;
      message.number(1, name + 1u);
      if constexpr (std::is_integral_v<decltype(value)>)
        message.number(field, value);
      else
        message.text(field, value);
      event.message(4, message);
    };
    constexpr unsigned kUnsigned = 3, kSigned = 4, kText = 6, kInternedText = 17;
    if (has_op) annotate(kOp, kText, valid_utf8(definitions_.string(details->op)));
    const std::uint32_t frame = lines_.frame_of(details->stack);
    if (frame != 0 && frame < known_lines_.size()) {
      intern(interned, kInternedValues, known_lines_, frame, kFirstLine + frame,
             lines_.long_text(frame));
      annotate(kLine, kInternedText, kFirstLine + frame);
    }
    if (details->bytes) annotate(kBytes, kSigned, static_cast<std::uint64_t>(*details->bytes));
    if (details->payload_bytes)
      annotate(kPayload, kSigned, static_cast<std::uint64_t>(*details->payload_bytes));
    if (details->of) annotate(kClass, kInternedText, static_cast<std::uint64_t>(*details->of) + 1);
    if (details->step) annotate(kStep, kUnsigned, *details->step);
    if (details->block) annotate(kBlock, kUnsigned, *details->block);
    if (details->record) annotate(kRecord, kUnsigned, *details->record);
    if (details->flow != 0) event.fixed64(47, flow_among_all(details->flow));
  }
  ProtoMessage packet;
  packet.number(8, time_ns + place_.shift_ns);
  packet.number(kPacketFlags, kNeedsState);
  if (!interned.empty()) packet.message(kPacketInterned, interned);
  packet.message(kPacketTrackEvent, event);
  put_packet(packet);
}

}  // namespace pleat::cli
