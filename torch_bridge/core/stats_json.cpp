// Counters as JSON. Torch-free.
#include <atomic>
#include <cstdint>
#include <string>

#include "torch_bridge/core/json_writer.h"
#include "torch_bridge/core/runtime.h"
#include "torch_bridge/core/trace_link.h"

namespace pleat::bridge {
namespace {

using allocator::StatKind;

template <class T>
std::uint64_t load(const std::atomic<T>& value) {
  return static_cast<std::uint64_t>(value.load(std::memory_order_relaxed));
}

void class_json(Json& json, const char* name, const CodecTotals::Class& c) {
  json.open(name)
      .field("payloads", c.payloads)
      .field("source_bytes", c.source_bytes)
      .field("payload_bytes", c.payload_bytes)
      .field("elements", c.elements)
      .close();
}

void bytes_json(Json& json, allocator::Statistics& statistics) {
  json.open("bytes");
  for (std::size_t i = 0; i < static_cast<std::size_t>(StatKind::kCount); ++i) {
    const auto kind = static_cast<StatKind>(i);
    const allocator::StatValues v = statistics.read(kind);
    json.open(allocator::stat_name(kind))
        .field("current", v.current)
        .field("peak", v.peak)
        .field("allocated", v.allocated)
        .field("freed", v.freed)
        .close();
  }
  json.close();
}

void counters_json(Json& json, const allocator::ResidencyCounters& r) {
  const auto tagged = load(r.tagged);
  json.field("tagged", r.tagged)
      .field("alive",
             static_cast<std::int64_t>(tagged) - static_cast<std::int64_t>(load(r.dropped)))
      .field("released", r.released)
      .field("encoded", r.encoded)
      .field("encoded_in_place", r.encoded_in_place)
      .field("recomputed", r.recomputed)
      .field("recomputed_bytes", r.recomputed_bytes)
      .field("double_encodes", r.double_encodes)
      .field("held", r.held)
      .field("kept", r.kept)
      .field("queued", r.queued)
      .field("restored", r.restored)
      .field("adopted", r.adopted)
      .field("copied", r.copied)
      .field("dropped", r.dropped)
      .field("dropped_unreleased", r.dropped_unreleased)
      .field("source_bytes", r.source_bytes)
      .field("payload_bytes", r.payload_bytes)
      .field("decoded_bytes", r.decoded_bytes);
}

void records_json(Json& json, Runtime& runtime) {
  json.open("records");
  counters_json(json, runtime.residency.counters());
  json.field("packs", runtime.packs)
      .field("unpacks", runtime.unpacks)
      .field("reused", runtime.reused)
      .field("swapped", runtime.swapped)
      .field("live_at_unpack", runtime.live_at_unpack)
      .field("backward_passes", runtime.backward_passes)
      .close();
}

void eligibility_json(Json& json, ReasonCounts& reasons) {
  json.open("eligibility");
  for (std::size_t i = 0; i < static_cast<std::size_t>(Reason::kCount); ++i) {
    const auto reason = static_cast<Reason>(i);
    if (load(reasons[reason].number) != 0) {
      json.open(reason_name(reason))
          .field("tensors", reasons[reason].number)
          .field("bytes", reasons[reason].bytes)
          .close();
    }
  }
  json.close();
}

// Floating tensors that asked for a gradient, by why they were exact.
void exactness_json(Json& json, Runtime& runtime) {
  json.open("exact");
  for (std::size_t i = 0; i < static_cast<std::size_t>(Exactness::kCount); ++i) {
    const auto& count = runtime.exactness[static_cast<Exactness>(i)];
    if (load(count.number) != 0) {
      json.open(exactness_name(static_cast<Exactness>(i)))
          .field("storages", count.number)
          .field("bytes", count.bytes)
          .close();
    }
  }
  json.field("poles_after_proof", runtime.poles_after_proof).close();
}

void proofs_json(Json& json, const ProofBook& proofs) {
  json.open_list("functions");
  for (const ProofBook::FunctionCost& function : proofs.costs()) {
    json.open()
        .text("name", function.name)
        .field("saved_bytes", static_cast<std::int64_t>(function.saved_bytes))
        .field("behind_bytes", static_cast<std::int64_t>(function.behind_bytes))
        .close();
  }
  json.close_list().open_list("late_poles");
  for (const ProofBook::LatePole& late : proofs.late_poles()) {
    json.open()
        .text("pole", late.pole)
        .text("saver", late.saver)
        .field("number", static_cast<std::int64_t>(late.number))
        .close();
  }
  json.close_list();
}

void codec_json(Json& json, const CodecTotals& t) {
  json.open("codec");
  for (const CodecTotals::NamedClass& c : t.classes()) {
    class_json(json, c.name, c.value);
  }
  json.field("kept_raw", t.kept_raw)
      .field("kept_raw_bytes", t.kept_raw_bytes)
      .field("groups", t.groups)
      .field("two_valued_groups", t.two_valued_groups)
      .field("escaped_groups", t.escaped_groups)
      .close();
}

void time_json(Json& json, const allocator::ResidencyCounters& r) {
  json.field("encode_ns", r.encode_ns).field("decode_ns", r.decode_ns);
}

void devices_json(Json& json, const DeviceTable& devices) {
  json.open_list("devices");
  devices.for_each([&](const DeviceFacts& device) {
    json.open().text("name", device.name);
    bytes_json(json, device.heap.statistics());
    json.open("records");
    counters_json(json, device.heap.residency().counters());
    json.close();
    codec_json(json, device.counts.totals);
    json.open("held");
    for (std::size_t i = 0; i < static_cast<std::size_t>(DeviceHold::kCount); ++i) {
      const auto why = static_cast<DeviceHold>(i);
      const auto& count = device.counts.holds[why];
      json.open(device_hold_name(why))
          .field("blocks", count.number)
          .field("bytes", count.bytes)
          .close();
    }
    json.close().field("surprises", device.counts.surprises).open("time");
    time_json(json, device.heap.residency().counters());
    json.close().close();
  });
  json.close_list();
}

void sensitivity_json(Json& json, const SensitivityBook::Summary& s) {
  json.open("sensitivity")
      .text("file", s.file)
      .field("units", static_cast<std::int64_t>(s.units))
      .field("measured", static_cast<std::int64_t>(s.measured))
      .field("distrusted", static_cast<std::int64_t>(s.distrusted))
      .number("bits", s.bits)
      .text("objective", sensitivity::name_of(s.objective))
      .number("noise", s.noise)
      .number("uniform_noise", s.uniform_noise)
      .field("burst_bytes", static_cast<std::int64_t>(s.burst_bytes))
      .field("bytes", static_cast<std::int64_t>(s.bytes))
      .field("uniform_bytes", static_cast<std::int64_t>(s.uniform_bytes))
      .field("bursts", static_cast<std::int64_t>(s.bursts))
      .field("passes", static_cast<std::int64_t>(s.passes))
      .number("seconds", s.seconds)
      .number("predicted", s.predicted)
      .number("checked", s.checked)
      .number("unsteady", s.unsteady)
      .open_list("refusals");
  for (const std::string& why : s.refusals) {
    json.text(nullptr, why);
  }
  json.close_list().close();
}

// What the trace that is being written, and those before it, have cost.
void trace_json(Json& json) {
  const auto field = [&json](const char* name, std::uint64_t value) {
    json.field(name, static_cast<std::int64_t>(value));
  };
  std::uint64_t writer_ns = 0, file_bytes = 0;
  if (const PleatRecorder* const recorder = trace_recorder.load(std::memory_order_acquire)) {
    recorder->cost(&writer_ns, &file_bytes);
  }
  json.open("trace").truth("on", tracing());
  field("events", trace_costs.events.count());
  field("event_ns", trace_costs.events.ns());
  field("callbacks", trace_costs.callbacks.count());
  field("callback_ns", trace_costs.callbacks.ns());
  field("small", trace_costs.small.count());
  field("small_ns", trace_costs.small.ns());
  field("writer_ns", writer_ns);
  field("file_bytes", file_bytes);
  json.close();
}

}  // namespace

std::string stats_json(Runtime& runtime) {
  const Options options = runtime.options();
  Json json;
  json.open();
  json.open("options");
  for (const OptionRow& row : option_table()) {
    json.text(std::string(row.key).c_str(), option_value(options, row.key));
  }
  json.close();
  json.field("enabled", runtime.enabled() ? 1 : 0).field("interposed", runtime.interposed ? 1 : 0);
  json.field("lossy_width", runtime.bits.uniform());
  bytes_json(json, runtime.statistics);
  records_json(json, runtime);
  eligibility_json(json, runtime.reasons);
  exactness_json(json, runtime);
  proofs_json(json, runtime.proofs);
  codec_json(json, runtime.codec.totals());
  json.open("gradients")
      .field("reused", runtime.gradients_reused)
      .field("reused_bytes", runtime.gradient_bytes_reused)
      .close();
  json.open("time");
  time_json(json, runtime.residency.counters());
  json.field("hook_ns_sampled", runtime.hook_ns_sampled)
      .field("hook_samples", runtime.hook_samples)
      .close();
  sensitivity_json(json, runtime.sensitivity.summary());
  devices_json(json, runtime.devices);
  trace_json(json);
  json.close();
  return json.take();
}

}  // namespace pleat::bridge
