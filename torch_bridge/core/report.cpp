// Counters as text. Torch-free.
#include <algorithm>
#include <cinttypes>
#include <cmath>
#include <cstdio>
#include <span>
#include <string>
#include <vector>

#include "torch_bridge/core/json_writer.h"
#include "torch_bridge/core/runtime.h"

namespace pleat::bridge {
namespace {

using allocator::StatKind;

template <class T>
std::uint64_t load(const std::atomic<T>& value) {
  return static_cast<std::uint64_t>(value.load(std::memory_order_relaxed));
}

std::string megabytes(double bytes) {
  char buffer[64];
  std::snprintf(buffer, sizeof buffer, bytes >= 9.95e6 ? "%.0f MB" : "%.1f MB", bytes / 1e6);
  return buffer;
}

double seconds(const std::atomic<std::uint64_t>& ns) { return static_cast<double>(load(ns)) / 1e9; }

// Lines of a report, as printf writes them.
class Text {
 public:
  template <typename... Args>
  void add(Args... args) {
    char line[512];
    std::snprintf(line, sizeof line, args...);
    out_ += line;
  }
  void append(const std::string& text) { out_ += text; }
  std::string take() { return std::move(out_); }

 private:
  std::string out_;
};

double peak(const Runtime& runtime, StatKind kind) {
  return static_cast<double>(runtime.statistics.read(kind).peak);
}

// What compression freed per backward pass, in bytes; 0 where there is nothing to estimate from.
double freed_per_pass(Runtime& runtime) {
  const allocator::ResidencyCounters& r = runtime.residency.counters();
  const auto passes = static_cast<double>(load(runtime.backward_passes));
  const auto freed =
      static_cast<double>(load(r.source_bytes)) - static_cast<double>(load(r.payload_bytes));
  return passes > 0 ? freed / passes : 0;
}

void add_memory(Text& text, Runtime& runtime) {
  const allocator::ResidencyCounters& r = runtime.residency.counters();
  const double freed = freed_per_pass(runtime);
  text.add("  memory        tensors took %s at the peak",
           megabytes(peak(runtime, StatKind::kRequested)).c_str());
  if (freed > 0) {
    text.add(", without compression about %s (estimate)",
             megabytes(peak(runtime, StatKind::kRequested) + freed).c_str());
  }
  if (load(r.source_bytes) > 0) {
    text.add("; encoding took %.2f s, decoding %.2f s\n", seconds(r.encode_ns),
             seconds(r.decode_ns));
  } else {
    text.add("; nothing was compressed\n");
  }
}

void add_classes(Text& text, const CodecTotals& totals) {
  for (const CodecTotals::NamedClass& c : totals.classes()) {
    const auto from = static_cast<double>(load(c.value.source_bytes));
    const auto to = static_cast<double>(load(c.value.payload_bytes));
    if (from > 0) {
      text.add("    %-15s %s -> %s  (%.2fx)\n", c.name, megabytes(from).c_str(),
               megabytes(to).c_str(), to > 0 ? from / to : 0.0);
    }
  }
}

void add_compression(Text& text, Runtime& runtime) {
  const allocator::ResidencyCounters& r = runtime.residency.counters();
  const Options options = runtime.options();
  const unsigned width = runtime.bits.uniform();
  const auto source = static_cast<double>(load(r.source_bytes));
  const auto payload = static_cast<double>(load(r.payload_bytes));
  text.add("  options       bits:%s when:%s place:%s min_bytes:%s seed:%s\n",
           option_value(options, "bits").c_str(), option_value(options, "when").c_str(),
           option_value(options, "place").c_str(), option_value(options, "min_bytes").c_str(),
           option_value(options, "seed").c_str());
  if (options.mode == Mode::kLossy && width != options.bits &&
      runtime.sensitivity.summary().measured == 0) {
    text.add("                without a profile bits:%s means a uniform width of %u bits\n",
             option_value(options, "bits").c_str(), width);
  }
  text.add("  compressed    %s -> %s", megabytes(source).c_str(), megabytes(payload).c_str());
  if (payload > 0) {
    text.add("  (%.2fx, %" PRIu64 " tensors, %" PRIu64 " backward passes)", source / payload,
             load(r.encoded) + load(r.recomputed), load(runtime.backward_passes));
  }
  text.add("\n");
  add_classes(text, runtime.codec.totals());
  if (const auto bytes = static_cast<double>(load(r.recomputed_bytes)); bytes > 0) {
    text.add("    %-15s %s -> nothing: results of GELU and SiLU, recomputed from their arguments\n",
             "recomputed", megabytes(bytes).c_str());
  }
  if (const double freed = freed_per_pass(runtime); freed > 0) {
    text.add("  estimate      the peak plus the %s that compression freed per backward pass\n",
             megabytes(freed).c_str());
  }
}

void add_costs(Text& text, Runtime& runtime) {
  text.add("  pages         %s resident at the peak in Pleat's segments\n",
           megabytes(peak(runtime, StatKind::kReserved)).c_str());
  text.add("  peak by kind  saved raw %s, payload %s, restored %s\n",
           megabytes(peak(runtime, StatKind::kSavedRaw)).c_str(),
           megabytes(peak(runtime, StatKind::kPayload)).c_str(),
           megabytes(peak(runtime, StatKind::kRestored)).c_str());
  if (const auto reused = load(runtime.gradients_reused); reused > 0) {
    text.add("  gradients     %" PRIu64 " written over the gradients they are made of (%s)\n",
             reused, megabytes(static_cast<double>(load(runtime.gradient_bytes_reused))).c_str());
  }
  if (const auto samples = load(runtime.hook_samples); samples > 0) {
    text.add("  hooks         %.0f ns a call\n",
             static_cast<double>(load(runtime.hook_ns_sampled)) / static_cast<double>(samples));
  }
}

void add_left_alone(Text& text, Runtime& runtime) {
  text.add("  left alone   ");
  bool any = false;
  for (std::size_t i = 0; i < static_cast<std::size_t>(Reason::kCount); ++i) {
    const auto reason = static_cast<Reason>(i);
    const auto tensors = load(runtime.reasons[reason].number);
    if (tensors == 0 || reason == Reason::kEligibleLossy || reason == Reason::kEligibleLossless) {
      continue;
    }
    text.add("%s %s %" PRIu64, any ? "," : "", reason_name(reason), tensors);
    any = true;
  }
  text.add("%s alive at unpack %" PRIu64 ", held raw %" PRIu64 " (%s)\n", any ? "," : "",
           load(runtime.live_at_unpack), load(runtime.residency.counters().held),
           megabytes(static_cast<double>(load(runtime.codec.totals().kept_raw_bytes))).c_str());
}

void add_exact(Text& text, Runtime& runtime) {
  std::uint64_t all = 0;
  std::uint64_t exact = 0;
  for (std::size_t i = 0; i < static_cast<std::size_t>(Exactness::kCount); ++i) {
    const std::uint64_t bytes = load(runtime.exactness[static_cast<Exactness>(i)].bytes);
    all += bytes;
    exact += i != 0 ? bytes : 0;
  }
  if (exact == 0) {
    return;
  }
  text.add("  exact         %.1f %% of what might bear noise:",
           100 * static_cast<double>(exact) / static_cast<double>(all));
  bool any = false;
  for (std::size_t i = 1; i < static_cast<std::size_t>(Exactness::kCount); ++i) {
    const auto why = static_cast<Exactness>(i);
    if (const std::uint64_t bytes = load(runtime.exactness[why].bytes); bytes != 0) {
      text.add("%s %s %s", any ? "," : "", exactness_name(why),
               megabytes(static_cast<double>(bytes)).c_str());
      any = true;
    }
  }
  text.add("\n");
}

// The value of the option that trusts those of the functions too that can be trusted; empty if
// there is none.
std::string trust_to_copy(Options options, std::span<const ProofBook::FunctionCost> functions) {
  bool any = false;
  for (const ProofBook::FunctionCost& function : functions) {
    // Of a class that is called FooBackward, "FooBackward" would be Foo's nodes, too.
    const std::string name =
        function.name + (function.name.ends_with("Backward") ? "Backward" : "");
    if (function.may_be_trusted && is_function_name(name)) {
      options.trust.push_back({name, false});
      any = true;
    }
  }
  return any ? option_value(options, "trust") : std::string();
}

void add_functions(Text& text, Runtime& runtime) {
  constexpr std::size_t kMost = 5;
  const std::vector<ProofBook::FunctionCost> costs = runtime.proofs.costs();
  const auto most = std::span(costs).first(std::min(kMost, costs.size()));
  if (most.empty()) {
    return;
  }
  text.add("  functions     exact, as Pleat cannot look into them:");
  for (const ProofBook::FunctionCost& function : most) {
    text.add("%s %s %s", &function != most.data() ? "," : "", printable(function.name).c_str(),
             megabytes(static_cast<double>(function.saved_bytes + function.behind_bytes)).c_str());
  }
  text.add("\n");
  if (const std::string trust = trust_to_copy(runtime.options(), most); !trust.empty()) {
    text.append("                if their gradients are linear in what they save: trust:" + trust +
                "\n");
  }
}

void add_late_poles(Text& text, Runtime& runtime) {
  constexpr std::size_t kMost = 5;
  const std::vector<ProofBook::LatePole> late = runtime.proofs.late_poles();
  if (late.empty()) {
    return;
  }
  text.add("  late poles    noise had been allowed before:");
  for (std::size_t i = 0; i < std::min(kMost, late.size()); ++i) {
    text.add("%s %s behind %s %" PRIu64, i != 0 ? "," : "", printable(late[i].pole).c_str(),
             printable(late[i].saver).c_str(), late[i].number);
  }
  text.add("\n");
}

void add_sensitivity(Text& text, Runtime& runtime) {
  const SensitivityBook::Summary s = runtime.sensitivity.summary();
  if (s.measured == 0) {
    for (const std::string& why : s.refusals) {
      text.add("  sensitivity   not measured: %s\n", printable(why).c_str());
    }
    return;
  }
  const char* const of = sensitivity::name_of(s.objective);
  text.add(
      "  sensitivity   %.2f bits on average for %zu of %zu tensors (%s, uniform %s); noise %.3g %% "
      "of the %s (uniform %.3g %%)\n",
      s.bits, s.measured, s.units, megabytes(static_cast<double>(s.bytes)).c_str(),
      megabytes(static_cast<double>(s.uniform_bytes)).c_str(), 100 * std::sqrt(s.noise), of,
      100 * std::sqrt(s.uniform_noise));
  if (s.passes != 0) {
    text.add("                %" PRIu64 " bursts, %" PRIu64
             " extra passes, %.2f s, %s of gradients and sketches at once",
             s.bursts, s.passes, s.seconds, megabytes(static_cast<double>(s.burst_bytes)).c_str());
    if (s.checked > 0) {
      text.add("; checked: %.3g %% of the %s, predicted %.3g %%", 100 * std::sqrt(s.checked), of,
               100 * std::sqrt(s.predicted));
    }
    text.add("\n");
  }
  if (s.distrusted != 0) {
    text.add("                %zu tensors have the default, as they were noisier than predicted\n",
             s.distrusted);
  }
}

// What became of a device's blocks; the sums over all devices stand in no line.
void add_device(Text& text, const DeviceFacts& device) {
  const allocator::ResidencyCounters& r = device.heap.residency().counters();
  const auto source = static_cast<double>(load(r.source_bytes));
  const auto payload = static_cast<double>(load(r.payload_bytes));
  text.add("  %-13s ", device.name.c_str());
  if (payload > 0) {
    text.add("%s -> %s  (%.2fx, %" PRIu64 " tensors)", megabytes(source).c_str(),
             megabytes(payload).c_str(), source / payload, load(r.encoded));
  } else {
    text.add("nothing was compressed");
  }
  const auto peak = [&](StatKind kind) {
    return megabytes(static_cast<double>(device.heap.statistics().read(kind).peak));
  };
  text.add("; at the peaks saved raw %s, payload %s, restored %s\n",
           peak(StatKind::kSavedRaw).c_str(), peak(StatKind::kPayload).c_str(),
           peak(StatKind::kRestored).c_str());
  add_classes(text, device.counts.totals);
  const char* separator = "    held raw       ";
  for (std::size_t i = 0; i < static_cast<std::size_t>(DeviceHold::kCount); ++i) {
    const auto why = static_cast<DeviceHold>(i);
    if (const std::uint64_t bytes = load(device.counts.holds[why].bytes); bytes != 0) {
      text.add("%s %s %" PRIu64 " (%s)", separator, device_hold_name(why),
               load(device.counts.holds[why].number),
               megabytes(static_cast<double>(bytes)).c_str());
      separator = ",";
    }
  }
  if (*separator == ',') text.add("\n");
}

}  // namespace

std::string report_text(Runtime& runtime) {
  Text text;
  text.add("pleat: report\n");
  add_memory(text, runtime);
  add_compression(text, runtime);
  add_costs(text, runtime);
  add_sensitivity(text, runtime);
  add_exact(text, runtime);
  add_functions(text, runtime);
  add_late_poles(text, runtime);
  add_left_alone(text, runtime);
  runtime.devices.for_each([&](const DeviceFacts& device) { add_device(text, device); });
  return text.take();
}

}  // namespace pleat::bridge
