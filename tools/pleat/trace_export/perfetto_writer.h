// Packets of a Perfetto trace: tracks, slices, counters. The messages are those of perfetto's
// TrackEvent, TrackDescriptor and InternedData (protos/perfetto/trace), written without a library.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "interpose/trace/byte_class.h"
#include "tools/pleat/trace/lines.h"
#include "tools/pleat/trace_command/output.h"

namespace pleat::cli {

// A message of protocol buffers, field by field.
class ProtoMessage {
 public:
  void number(unsigned field, std::uint64_t value) {
    put(field << 3);
    put(value);
  }
  void fixed64(unsigned field, std::uint64_t value) {
    put(field << 3 | 1);
    for (unsigned i = 0; i < 8; ++i) bytes_ += static_cast<char>(value >> (8 * i));
  }
  void text(unsigned field, std::string_view value) {
    put(field << 3 | 2);
    put(value.size());
    bytes_ += value;
  }
  void message(unsigned field, const ProtoMessage& value) { text(field, value.bytes_); }
  void append(const ProtoMessage& fields) { bytes_ += fields.bytes_; }
  [[nodiscard]] const std::string& bytes() const noexcept { return bytes_; }
  [[nodiscard]] bool empty() const noexcept { return bytes_.empty(); }

 private:
  void put(std::uint64_t value) {
    for (; value >= 0x80; value >>= 7) bytes_ += static_cast<char>(value | 0x80);
    bytes_ += static_cast<char>(value);
  }
  std::string bytes_;
};

// A process among others in one file: the numbers of its packets and tracks.
struct PerfettoPlace {
  unsigned number = 0;         // the first, 0, says which clock all times are of
  unsigned part = 0;           // of the process: a later one goes on with its tracks
  std::uint64_t pid = 0;       // no other process of the file has it
  std::string name;            // of the process
  std::uint64_t shift_ns = 0;  // to be added to its times, modulo 2^64
  std::set<std::uint64_t>* described = nullptr;  // tracks, by all parts; null: there is one part
};
// Of the only process of a file.
[[nodiscard]] PerfettoPlace only_place(const trace::Process& process);

class PerfettoWriter {
 public:
  using Track = std::uint64_t;  // its uuid
  static constexpr Track kProcess = 1;

  PerfettoWriter(TraceOutput& out, const trace::Definitions& definitions, trace::Lines& lines,
                 PerfettoPlace place);

  // Details of a slice. 0 or empty: left out.
  struct Details {
    std::uint32_t op = 0;  // its name, unless `name` is given
    std::string_view name;
    std::uint32_t stack = 0;
    std::optional<std::int64_t> bytes, payload_bytes;
    std::optional<std::uint64_t> step, block, record;
    std::optional<trace::ByteClass> of;
    std::uint64_t flow = 0;
  };

  // Once, before all else. The clock of all times is CLOCK_MONOTONIC.
  void begin(const trace::Process& process, std::uint64_t start_ns);
  void thread(Track track, std::uint32_t tid, bool is_main);
  void counter(Track track, std::string_view name, std::string_view axis);
  // Tracks of one name are shown as one.
  void lane(Track track, std::string_view name);

  void begin_slice(Track track, std::uint64_t time_ns, const Details& details) {
    put_event(kSliceBegin, track, time_ns, &details);
  }
  void end_slice(Track track, std::uint64_t time_ns) {
    put_event(kSliceEnd, track, time_ns, nullptr);
  }
  void instant(Track track, std::uint64_t time_ns, const Details& details) {
    put_event(kInstant, track, time_ns, &details);
  }
  void count(Track track, std::uint64_t time_ns, std::int64_t value);

 private:
  enum Type : unsigned { kSliceBegin = 1, kSliceEnd = 2, kInstant = 3, kCounter = 4 };

  void put_event(Type type, Track track, std::uint64_t time_ns, const Details* details);
  void put_clocks(const trace::Process& process, std::uint64_t start_ns);
  void put_track(Track track, const ProtoMessage& what);
  // As they are in a file with other processes.
  [[nodiscard]] Track among_all(Track track) const noexcept {
    return Track{place_.number} << 48 | track;
  }
  [[nodiscard]] std::uint64_t flow_among_all(std::uint64_t flow) const noexcept {
    return flow ^ std::uint64_t{place_.number} << 40;
  }
  void put_packet(ProtoMessage& packet);
  // Adds the text to `interned` if it is not known yet.
  void intern(ProtoMessage& interned, unsigned field, std::vector<bool>& known, std::size_t id,
              std::uint64_t iid, std::string_view text) const;

  TraceOutput& out_;
  const trace::Definitions& definitions_;
  trace::Lines& lines_;
  const PerfettoPlace place_;
  std::vector<bool> known_ops_, known_lines_;
};

}  // namespace pleat::cli
