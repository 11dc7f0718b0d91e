#include "torch_bridge/core/statistics.h"

#include <atomic>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "torch_bridge/core/runtime.h"
#include "torch_bridge/trace/state.h"

namespace pleat::bridge {
namespace {

using allocator::StatKind;
using Json = nlohmann::ordered_json;

template <class T>
std::uint64_t load(const std::atomic<T>& value) {
  return static_cast<std::uint64_t>(value.load(std::memory_order_relaxed));
}

// By the names of an enum's values. `unit`: the name of the number; without zeros unless `all`.
template <class Enum, class Name>
Json counts(const Counts<Enum>& of, Name name, const char* unit, bool all) {
  Json json = Json::object();
  for (std::size_t i = 0; i < static_cast<std::size_t>(Enum::kCount); ++i) {
    const auto& count = of[static_cast<Enum>(i)];
    if (all || load(count.number) != 0)
      json[name(static_cast<Enum>(i))] = {{unit, load(count.number)}, {"bytes", load(count.bytes)}};
  }
  return json;
}

Json bytes_by_kind(const allocator::Statistics& statistics) {
  Json json = Json::object();
  for (std::size_t i = 0; i < static_cast<std::size_t>(StatKind::kCount); ++i) {
    const allocator::StatValues v = statistics.read(static_cast<StatKind>(i));
    json[allocator::stat_name(static_cast<StatKind>(i))] = {
        {"current", v.current}, {"peak", v.peak}, {"allocated", v.allocated}, {"freed", v.freed}};
  }
  return json;
}

Json records(const allocator::ResidencyCounters& r) {
  const auto alive =
      static_cast<std::int64_t>(load(r.tagged)) - static_cast<std::int64_t>(load(r.dropped));
  return {{"tagged", load(r.tagged)},
          {"alive", alive},
          {"released", load(r.released)},
          {"encoded", load(r.encoded)},
          {"encoded_in_place", load(r.encoded_in_place)},
          {"not_in_place", load(r.not_in_place)},
          {"recomputed", load(r.recomputed)},
          {"recomputed_bytes", load(r.recomputed_bytes)},
          {"held", load(r.held)},
          {"kept", load(r.kept)},
          {"queued", load(r.queued)},
          {"restored", load(r.restored)},
          {"adopted", load(r.adopted)},
          {"copied", load(r.copied)},
          {"dropped", load(r.dropped)},
          {"dropped_unreleased", load(r.dropped_unreleased)},
          {"source_bytes", load(r.source_bytes)},
          {"payload_bytes", load(r.payload_bytes)},
          {"decoded_bytes", load(r.decoded_bytes)}};
}

Json times(const allocator::ResidencyCounters& r) {
  return {{"encode_ns", load(r.encode_ns)}, {"decode_ns", load(r.decode_ns)}};
}

Json codec(const CodecTotals& t) {
  Json json = Json::object();
  for (const CodecTotals::NamedClass& c : t.classes())
    json[c.name] = {{"payloads", load(c.value.payloads)},
                    {"source_bytes", load(c.value.source_bytes)},
                    {"payload_bytes", load(c.value.payload_bytes)},
                    {"elements", load(c.value.elements)}};
  json["kept_raw"] = load(t.kept_raw);
  json["kept_raw_bytes"] = load(t.kept_raw_bytes);
  json["groups"] = load(t.groups);
  json["two_valued_groups"] = load(t.two_valued_groups);
  json["escaped_groups"] = load(t.escaped_groups);
  return json;
}

Json devices(const DeviceTable& table) {
  Json json = Json::array();
  table.for_each([&](const DeviceFacts& device) {
    const allocator::ResidencyCounters& r = device.heap.residency().counters();
    json.push_back({{"name", device.name},
                    {"place", "arena"},  // the only place of payloads on a device so far
                    {"bytes", bytes_by_kind(device.heap.statistics())},
                    {"records", records(r)},
                    {"codec", codec(device.counts.totals)},
                    {"held", counts(device.counts.holds, device_hold_name, "blocks", true)},
                    {"surprises", load(device.counts.surprises)},
                    {"time", times(r)}});
  });
  return json;
}

// NaN and infinities are null.
Json sensitivity_of(const SensitivityBook::Summary& s) {
  return {{"file", s.file},
          {"units", s.units},
          {"measured", s.measured},
          {"distrusted", s.distrusted},
          {"bits", s.bits},
          {"objective", sensitivity::name_of(s.objective)},
          {"noise", s.noise},
          {"uniform_noise", s.uniform_noise},
          {"burst_bytes", s.burst_bytes},
          {"bytes", s.bytes},
          {"uniform_bytes", s.uniform_bytes},
          {"bursts", s.bursts},
          {"passes", s.passes},
          {"seconds", s.seconds},
          {"predicted", s.predicted},
          {"checked", s.checked},
          {"unsteady", s.unsteady},
          {"refusals", s.refusals}};
}

// Costs of the trace that is being written, and of those before it.
Json trace() {
  std::uint64_t writer_ns = 0, file_bytes = 0;
  if (const PleatRecorder* const recorder = trace_recorder())
    recorder->cost(&writer_ns, &file_bytes);
  return {{"on", tracing()},
          {"events", trace_state.events.count()},
          {"event_ns", trace_state.events.ns()},
          {"callbacks", trace_state.callbacks.count()},
          {"callback_ns", trace_state.callbacks.ns()},
          {"small", trace_state.small.count()},
          {"small_ns", trace_state.small.ns()},
          {"writer_ns", writer_ns},
          {"file_bytes", file_bytes}};
}

}  // namespace

nlohmann::ordered_json statistics_of(Runtime& runtime) {
  const Options options = runtime.options();
  Json json = Json::object();
  for (const OptionRow& row : option_table())
    json["options"][std::string(row.key)] = option_value(options, row.key);
  json["enabled"] = runtime.enabled() ? 1 : 0;
  json["interposed"] = runtime.interposed ? 1 : 0;
  json["lossy_width"] = runtime.bits.uniform();
  json["bytes"] = bytes_by_kind(runtime.statistics);
  json["records"] = records(runtime.residency.counters());
  json["records"].update({{"packs", load(runtime.packs)},
                          {"unpacks", load(runtime.unpacks)},
                          {"reused", load(runtime.reused)},
                          {"swapped", load(runtime.swapped)},
                          {"live_at_unpack", load(runtime.live_at_unpack)},
                          {"backward_passes", load(runtime.backward_passes)}});
  json["eligibility"] = counts(runtime.reasons, reason_name, "tensors", false);
  // Floating tensors that asked for a gradient, by why they were exact.
  json["exact"] = counts(runtime.exactness, exactness_name, "storages", false);
  json["exact"]["poles_after_proof"] = load(runtime.poles_after_proof);
  json["functions"] = Json::array();
  for (const ProofBook::FunctionCost& function : runtime.proofs.costs())
    json["functions"].push_back({{"name", function.name},
                                 {"saved_bytes", function.saved_bytes},
                                 {"behind_bytes", function.behind_bytes}});
  json["late_poles"] = Json::array();
  for (const ProofBook::LatePole& late : runtime.proofs.late_poles())
    json["late_poles"].push_back(
        {{"pole", late.pole}, {"saver", late.saver}, {"number", late.number}});
  json["codec"] = codec(runtime.codec.totals());
  json["gradients"] = {{"reused", load(runtime.gradients_reused)},
                       {"reused_bytes", load(runtime.gradient_bytes_reused)}};
  json["time"] = times(runtime.residency.counters());
  json["time"].update({{"hook_ns_sampled", load(runtime.hook_ns_sampled)},
                       {"hook_samples", load(runtime.hook_samples)}});
  json["sensitivity"] = sensitivity_of(runtime.sensitivity.summary());
  json["devices"] = devices(runtime.devices);
  json["trace"] = trace();
  return json;
}

std::string stats_json(Runtime& runtime) {
  return statistics_of(runtime).dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace pleat::bridge
