// Statistics as text.
#include <algorithm>
#include <cinttypes>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "torch_bridge/core/option_text.h"
#include "torch_bridge/core/runtime.h"
#include "torch_bridge/core/statistics.h"

namespace pleat::bridge {
namespace {

using allocator::StatKind;
using Json = nlohmann::ordered_json;

std::string megabytes(double bytes) {
  char buffer[64];
  std::snprintf(buffer, sizeof buffer, bytes >= 9.95e6 ? "%.0f MB" : "%.1f MB", bytes / 1e6);
  return buffer;
}

// A number of the tree; null is NaN.
double real(const Json& value) { return value.is_number() ? value.get<double>() : NAN; }
std::uint64_t whole(const Json& value) { return value.get<std::uint64_t>(); }
std::string megabytes(const Json& value) { return megabytes(real(value)); }
std::string peak(const Json& bytes, StatKind kind) {
  return megabytes(bytes.at(allocator::stat_name(kind)).at("peak"));
}
std::string text_of(const Json& value) { return value.get<std::string>(); }

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

// Bytes that compression freed per backward pass; 0 without any pass.
double freed_per_pass(const Json& records) {
  const double passes = real(records.at("backward_passes"));
  return passes > 0
             ? (real(records.at("source_bytes")) - real(records.at("payload_bytes"))) / passes
             : 0;
}

void add_memory(Text& text, const Json& all) {
  const Json& records = all.at("records");
  const double requested =
      real(all.at("bytes").at(allocator::stat_name(StatKind::kRequested)).at("peak"));
  const double freed = freed_per_pass(records);
  text.add("  memory        tensors took %s at the peak", megabytes(requested).c_str());
  if (freed > 0)
    text.add(", without compression about %s (estimate)", megabytes(requested + freed).c_str());
  if (records.at("source_bytes") > 0)
    text.add("; encoding took %.2f s, decoding %.2f s\n",
             real(all.at("time").at("encode_ns")) / 1e9,
             real(all.at("time").at("decode_ns")) / 1e9);
  else
    text.add("; nothing was compressed\n");
}

void add_classes(Text& text, const Json& codec) {
  for (const auto& [name, of_class] : codec.items()) {
    if (!of_class.is_object()) continue;
    const double from = real(of_class.at("source_bytes"));
    const double to = real(of_class.at("payload_bytes"));
    if (from > 0)
      text.add("    %-15s %s -> %s  (%.2fx)\n", name.c_str(), megabytes(from).c_str(),
               megabytes(to).c_str(), to > 0 ? from / to : 0.0);
  }
}

void add_compression(Text& text, const Json& all, const Options& options, unsigned width) {
  const Json& records = all.at("records");
  const auto option = [&](const char* key) { return text_of(all.at("options").at(key)); };
  const double source = real(records.at("source_bytes"));
  const double payload = real(records.at("payload_bytes"));
  text.add("  options       bits:%s when:%s place:%s min_bytes:%s seed:%s\n",
           option("bits").c_str(), option("when").c_str(), option("place").c_str(),
           option("min_bytes").c_str(), option("seed").c_str());
  if (options.mode == Mode::kLossy && width != options.bits &&
      all.at("sensitivity").at("measured") == 0)
    text.add("                without a profile bits:%s means a uniform width of %u bits\n",
             option("bits").c_str(), width);
  text.add("  compressed    %s -> %s", megabytes(source).c_str(), megabytes(payload).c_str());
  if (payload > 0)
    text.add("  (%.2fx, %" PRIu64 " tensors, %" PRIu64 " backward passes)", source / payload,
             whole(records.at("encoded")) + whole(records.at("recomputed")),
             whole(records.at("backward_passes")));
  text.add("\n");
  add_classes(text, all.at("codec"));
  if (records.at("recomputed_bytes") > 0)
    text.add("    %-15s %s -> nothing: results of GELU and SiLU, recomputed from their arguments\n",
             "recomputed", megabytes(records.at("recomputed_bytes")).c_str());
  if (const double freed = freed_per_pass(records); freed > 0)
    text.add("  estimate      the peak plus the %s that compression freed per backward pass\n",
             megabytes(freed).c_str());
}

// Payloads that place:inplace could not place over their blocks.
void add_elsewhere(Text& text, const Json& all) {
  std::uint64_t elsewhere = whole(all.at("records").at("not_in_place"));
  for (const Json& device : all.at("devices")) {
    elsewhere += whole(device.at("records").at("not_in_place"));
  }
  if (elsewhere == 0) return;
  text.add("  place         %" PRIu64
           " payloads are not at the head of their blocks: other streams or a device used these,\n"
           "                or a payload has no form that can be written there\n",
           elsewhere);
}

void add_costs(Text& text, const Json& all) {
  const Json& bytes = all.at("bytes");
  text.add("  pages         %s resident at the peak in Pleat's segments\n",
           peak(bytes, StatKind::kReserved).c_str());
  text.add("  peak by kind  saved raw %s, payload %s, restored %s\n",
           peak(bytes, StatKind::kSavedRaw).c_str(), peak(bytes, StatKind::kPayload).c_str(),
           peak(bytes, StatKind::kRestored).c_str());
  if (const Json& gradients = all.at("gradients"); gradients.at("reused") > 0)
    text.add("  gradients     %" PRIu64 " written over the gradients they are made of (%s)\n",
             whole(gradients.at("reused")), megabytes(gradients.at("reused_bytes")).c_str());
  if (const Json& time = all.at("time"); time.at("hook_samples") > 0)
    text.add("  hooks         %.0f ns a call\n",
             real(time.at("hook_ns_sampled")) / real(time.at("hook_samples")));
}

void add_left_alone(Text& text, const Json& all) {
  text.add("  left alone   ");
  const char* separator = "";
  for (const auto& [reason, count] : all.at("eligibility").items()) {
    if (reason == reason_name(Reason::kEligibleLossy) ||
        reason == reason_name(Reason::kEligibleLossless))
      continue;
    text.add("%s %s %" PRIu64, separator, reason.c_str(), whole(count.at("tensors")));
    separator = ",";
  }
  text.add("%s alive at unpack %" PRIu64 ", held raw %" PRIu64 " (%s)\n", separator,
           whole(all.at("records").at("live_at_unpack")), whole(all.at("records").at("held")),
           megabytes(all.at("codec").at("kept_raw_bytes")).c_str());
}

void add_exact(Text& text, const Json& exact) {
  double sum = 0, noisy = 0;
  std::string reasons;
  for (const auto& [why, count] : exact.items()) {
    if (!count.is_object() || count.at("bytes") == 0) continue;
    sum += real(count.at("bytes"));
    if (why == exactness_name(Exactness::kMayBearNoise))
      noisy = real(count.at("bytes"));
    else
      reasons += (reasons.empty() ? " " : ", ") + why + ' ' + megabytes(count.at("bytes"));
  }
  if (reasons.empty()) return;
  text.add("  exact         %.1f %% of what might bear noise:", 100 * (sum - noisy) / sum);
  text.append(reasons + '\n');
}

// The option `trust` with those of the functions that can be trusted added; empty without any.
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

void add_late_poles(Text& text, const Json& late_poles) {
  constexpr std::size_t kMost = 5;
  if (late_poles.empty()) return;
  text.add("  late poles    noise had been allowed before:");
  for (std::size_t i = 0; i < std::min(kMost, late_poles.size()); ++i)
    text.add("%s %s behind %s %" PRIu64, i != 0 ? "," : "",
             printable(text_of(late_poles[i].at("pole"))).c_str(),
             printable(text_of(late_poles[i].at("saver"))).c_str(),
             whole(late_poles[i].at("number")));
  text.add("\n");
}

void add_sensitivity(Text& text, const Json& s) {
  if (s.at("measured") == 0) {
    for (const Json& why : s.at("refusals"))
      text.add("  sensitivity   not measured: %s\n", printable(text_of(why)).c_str());
    return;
  }
  const std::string of = text_of(s.at("objective"));
  const auto percent = [&](const char* name) { return 100 * std::sqrt(real(s.at(name))); };
  text.add("  sensitivity   %.2f bits on average for %" PRIu64 " of %" PRIu64
           " tensors (%s, uniform %s); noise %.3g %% of the %s (uniform %.3g %%)\n",
           real(s.at("bits")), whole(s.at("measured")), whole(s.at("units")),
           megabytes(s.at("bytes")).c_str(), megabytes(s.at("uniform_bytes")).c_str(),
           percent("noise"), of.c_str(), percent("uniform_noise"));
  if (s.at("passes") != 0) {
    text.add("                %" PRIu64 " bursts, %" PRIu64
             " extra passes, %.2f s, %s of gradients and sketches at once",
             whole(s.at("bursts")), whole(s.at("passes")), real(s.at("seconds")),
             megabytes(s.at("burst_bytes")).c_str());
    if (real(s.at("checked")) > 0)
      text.add("; checked: %.3g %% of the %s, predicted %.3g %%", percent("checked"), of.c_str(),
               percent("predicted"));
    text.add("\n");
  }
  if (s.at("distrusted") != 0)
    text.add("                %" PRIu64
             " tensors have the default, as they were noisier than predicted\n",
             whole(s.at("distrusted")));
}

// The blocks of one device; no line has sums over all devices.
void add_device(Text& text, const Json& device) {
  const Json& records = device.at("records");
  const double source = real(records.at("source_bytes"));
  const double payload = real(records.at("payload_bytes"));
  text.add("  %-13s ", text_of(device.at("name")).c_str());
  if (payload > 0)
    text.add("%s -> %s  (%.2fx, %" PRIu64 " tensors)", megabytes(source).c_str(),
             megabytes(payload).c_str(), source / payload, whole(records.at("encoded")));
  else
    text.add("nothing was compressed");
  const Json& bytes = device.at("bytes");
  text.add("; at the peaks saved raw %s, payload %s, restored %s\n",
           peak(bytes, StatKind::kSavedRaw).c_str(), peak(bytes, StatKind::kPayload).c_str(),
           peak(bytes, StatKind::kRestored).c_str());
  add_classes(text, device.at("codec"));
  const char* separator = "    held raw       ";
  for (const auto& [why, count] : device.at("held").items()) {
    if (count.at("bytes") == 0) continue;
    text.add("%s %s %" PRIu64 " (%s)", separator, why.c_str(), whole(count.at("blocks")),
             megabytes(count.at("bytes")).c_str());
    separator = ",";
  }
  if (*separator == ',') text.add("\n");
}

}  // namespace

std::string report_text(Runtime& runtime) {
  const Json all = statistics_of(runtime);
  Text text;
  text.add("pleat: report\n");
  add_memory(text, all);
  add_compression(text, all, runtime.options(), runtime.bits.uniform());
  add_elsewhere(text, all);
  add_costs(text, all);
  add_sensitivity(text, all.at("sensitivity"));
  add_exact(text, all.at("exact"));
  add_functions(text, runtime);
  add_late_poles(text, all.at("late_poles"));
  add_left_alone(text, all);
  for (const Json& device : all.at("devices")) add_device(text, device);
  return text.take();
}

}  // namespace pleat::bridge
