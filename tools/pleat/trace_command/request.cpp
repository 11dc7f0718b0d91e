#include "request.h"

#include <fmt/format.h>

#include <algorithm>

#include "text.h"
#include "tools/pleat/program.h"

namespace pleat::cli {
namespace {

// Seconds are printed in milliseconds, and typed as they were printed.
constexpr double kAsPrinted = 0.0005;

// The error; empty: none.
std::string complaint(const TraceSelection& selection, const Moment& at,
                      const trace::Lives& lives) {
  if (selection.until_seconds && *selection.until_seconds < selection.since_seconds)
    return "--until is before --since";
  if (lives.events == 0) return {};  // there is nothing to lie outside of
  const double length = std::max(lives.seconds(lives.last_time_ns), 0.0);
  const auto is_late = [length](double seconds) { return seconds > length + kAsPrinted; };
  const auto too_late = [length](const char* option) {
    return fmt::format("{}: the trace ends at {:.3f} s", option, length);
  };
  if (is_late(selection.since_seconds)) return too_late("--since");
  if (at.kind == Moment::Kind::kTime && is_late(at.seconds)) return too_late("--at");
  if (const std::optional<std::uint64_t> step = selection.filter.step) {
    const auto is_it = [step](const trace::Step& one) { return one.number == *step; };
    if (lives.steps.empty()) return "--step: the trace has no steps";
    if (std::none_of(lives.steps.begin(), lives.steps.end(), is_it))
      return fmt::format("--step {}: the trace has steps {} to {}", *step,
                         lives.steps.front().number, lives.steps.back().number);
  }
  if (selection.device && !lives.devices.contains(*selection.device))
    return "has nothing of " + device_text(*selection.device);
  return {};
}

}  // namespace

MomentWatch::MomentWatch(const Moment& moment, const trace::DeviceLives& device,
                         const trace::Lives& all)
    : last_event_(all.events - 1) {
  using Kind = Moment::Kind;
  const trace::Peak& peak = device.peaks[PLEAT_TRACE_REQUESTED];
  if (moment.kind == Kind::kPeak && peak.bytes > 0) event_ = peak.event;
  if (moment.kind == Kind::kEnd) event_ = all.end_event;
  if (moment.kind == Kind::kOutOfMemory) event_ = device.last_out_of_memory;
  if (moment.kind == Kind::kDump) event_ = all.last_dump;
  if (moment.kind == Kind::kTime)
    time_ns_ = all.start_ns + static_cast<std::uint64_t>(std::min(moment.seconds * 1e9, 9e18));
}

int trouble(std::string_view line) {
  say("pleat: {}\n", line);
  return kTraceTrouble;
}

int trouble(const std::string& path, std::string_view why) {
  return trouble(shown_path(path) + ": " + std::string(why));
}

bool is_within(const TraceSelection& selection, const Moment& at, const trace::Lives& lives) {
  const std::string wrong = complaint(selection, at, lives);
  if (!wrong.empty()) trouble(selection.file, wrong);
  return wrong.empty();
}

}  // namespace pleat::cli
