#include "torch_bridge/measure/read_log.h"

#include <ATen/ATen.h>
#include <c10/core/ScalarTypeToTypeMeta.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "compress/block/payload_sample.h"
#include "compress/codec.h"
#include "compress/format.h"
#include "compress/lines/exact_lines.h"
#include "compress/sides/sides.h"
#include "torch_bridge/core/runtime.h"
#include "torch_bridge/policy/functions.h"

namespace pleat::bridge {
namespace {

using compress::block::BlockForm;
using compress::block::BlockSource;
using compress::block::ByteRange;
using compress::block::PayloadSample;
using compress::block::sample_payload;
using compress::block::WidthCost;
using compress::block::WidthCosts;
using torch::autograd::Node;

void add_name(std::string& names, const std::string& name) {
  constexpr std::size_t kLongest = 256;
  if (names.find(name) == std::string::npos && names.size() < kLongest) {
    names += (names.empty() ? "" : ", ") + name;
  }
}

// Why no width of a record is a choice; empty: it is one.
std::string_view fixed_reason(const std::optional<Decision>& decided, bool living) {
  return living                     ? "alive"
         : !decided                 ? "held"
         : decided->may_be_noisy()  ? ""
         : decided->trail().empty() ? exactness_name(decided->exactness)
                                    : name_of(decided->trail().back().why);
}

bool is_on_host(const TorchRecord& record) noexcept {
  return record.backend().heap().device().value == allocator::HeapTable::kHost;
}

void add(WidthCosts& into, const WidthCosts& from, bool first) {
  for (std::size_t i = 0; i < into.size(); ++i) {
    into[i].possible = from[i].possible && (first || into[i].possible);
    into[i].bits = from[i].bits;
    into[i].payload_bytes += from[i].payload_bytes;
    into[i].squared_error += from[i].squared_error;
  }
}

// Bytes of the record's device, which its current stream may read.
at::Tensor on_device(const TorchRecord::Restored& restored, const void* data, std::size_t bytes) {
  return at::from_blob(const_cast<void*>(data), {static_cast<std::int64_t>(bytes)},
                       at::TensorOptions().dtype(at::kByte).device(restored.storage.device()));
}
// The same on the host. Waits for them.
at::Tensor on_host(const TorchRecord::Restored& restored, const void* data, std::size_t bytes) {
  return on_device(restored, data, bytes).cpu();
}

// By the values that a restore gives.
std::optional<WidthCosts> costs_of_values(TorchRecord& record, const CodecChoice& choice,
                                          const compress::Executor& executor) {
  const TorchRecord::Restored restored = record.restore(/*slice=*/false);
  const at::Tensor values = on_host(restored, restored.storage.data(), record.bytes);
  const std::vector<ByteRange> ranges = block_ranges(record.ranges.data(), record.ranges.size());
  return width_costs(
      BlockSource{values.const_data_ptr(), record.bytes, ranges.data(), ranges.size()}, choice,
      executor);
}

// Of a large span: by a few of its groups.
std::optional<WidthCosts> costs_of_sample(const TorchRecord::Restored& restored,
                                          const CodedSpan& span, const std::byte* data,
                                          const PayloadSample& sample, const CodecChoice& choice) {
  std::vector<at::Tensor> parts;
  for (const ByteRange& part : sample.parts) {
    parts.push_back(on_device(restored, data + part.begin, part.end - part.begin));
  }
  const at::Tensor payload = at::cat(parts).cpu();
  sample.finish(payload.data_ptr());
  BlockForm form = span.form;
  const auto all = static_cast<double>(form.elements);
  form.elements = sample.elements;
  std::optional<WidthCosts> costs =
      width_costs(form, payload.const_data_ptr(), sample.bytes,
                  sample.elements * compress::element_size(form.type), choice);
  if (costs) {
    for (WidthCost& cost : *costs) {
      cost.squared_error *= all / static_cast<double>(sample.elements);
    }
  }
  return costs;
}

// By a device's codes: restored values would not show their distance from the saved ones.
std::optional<WidthCosts> costs_of_codes(TorchRecord& record, const CodecChoice& choice,
                                         const allocator::PayloadView& payload,
                                         const std::vector<CodedSpan>& spans) {
  // A reader of the values can also read their payload.
  const TorchRecord::Restored restored = record.restore(/*slice=*/false);
  WidthCosts sum{};
  for (const CodedSpan& span : spans) {
    const auto* const data = static_cast<const std::byte*>(payload.data) + span.offset;
    const std::optional<PayloadSample> sample =
        sample_payload(on_host(restored, data, compress::kHeaderBytes).const_data_ptr());
    const std::optional<WidthCosts> costs =
        sample ? costs_of_sample(restored, span, data, *sample, choice)
               : width_costs(span.form, on_host(restored, data, span.bytes).const_data_ptr(),
                             span.bytes, span.span_bytes, choice);
    if (!costs) {
      return std::nullopt;
    }
    add(sum, *costs, &span == &spans.front());
  }
  return sum;
}

// The bytes of a device's payloads: it has no shorter form of zeros, and the same beside the codes
// at every width.
//   spans  of its payload; empty: there is none of codes
void set_device_bytes(const TorchRecord& record, const CodecChoice& choice,
                      const std::vector<CodedSpan>& spans, WidthCosts& costs) {
  std::size_t beside = 0;
  for (const CodedSpan& span : spans) {
    beside += span.beside_bytes;
  }
  const compress::Sides sides = choice.sides.any()
                                    ? compress::sides_beside_values(choice.sides, choice.type)
                                    : compress::Sides{};
  const auto elements_of = [&](std::size_t span) {
    const allocator::ByteRange& range = record.ranges.data()[span];
    return (range.end - range.begin) / element_size(choice.type);
  };
  for (std::size_t i = 0; i < record.ranges.size() && spans.empty() && sides.any(); ++i) {
    beside += compress::payload_bound({.sides = sides}, choice.type, elements_of(i));
  }
  const compress::CodecSpec codec = choice.codec();
  for (WidthCost& cost : costs) {
    if (!cost.possible) {
      continue;
    }
    cost.payload_bytes = beside;
    for (std::size_t i = 0; i < record.ranges.size(); ++i) {
      cost.payload_bytes +=
          compress::GroupedLayout(choice.type, cost.bits, elements_of(i),
                                  codec.transform != compress::Transform::kNone, codec.exponents)
              .end();
    }
  }
}

std::optional<WidthCosts> costs_on_device(TorchRecord& record, const CodecChoice& choice,
                                          const allocator::PayloadView& payload,
                                          const compress::Executor& executor) {
  std::vector<CodedSpan> spans;
  if (payload.data != nullptr) {
    spans = record.backend().coded_spans(payload);
  }
  std::optional<WidthCosts> costs = spans.empty() ? costs_of_values(record, choice, executor)
                                                  : costs_of_codes(record, choice, payload, spans);
  if (costs) {
    set_device_bytes(record, choice, spans, *costs);
    // At fewer bits more lines are flat, and a device may have no room for them. The payload has
    // shown that its own width fits; widths below that and below 4 bits are ruled out.
    const std::size_t elements = record.bytes / compress::element_size(choice.type);
    if (choice.lines.look > compress::block::Look::kParts &&
        compress::block::may_be_flat(elements, choice.type, choice.lines)) {
      const unsigned fits = spans.empty() ? 4 : std::min<unsigned>(4, spans.front().form.bits);
      for (WidthCost& cost : *costs) {
        cost.possible = cost.possible && cost.bits >= fits;
      }
    }
  }
  return costs;
}

std::size_t bytes_of(const allocator::Stored& stored, const TorchRecord& record) {
  const allocator::Payload* const payload = payload_of(stored);
  return payload != nullptr ? payload->bytes : record.bytes;
}

// Also gives the bytes that stand for the record now. The record is not dropped meanwhile.
std::optional<WidthCosts> costs_of(TorchRecord& record, const CodecChoice& choice,
                                   std::size_t* payload_bytes) {
  Runtime& runtime = *Runtime::get();
  allocator::Residency& residency = record.backend().residency();
  std::optional<allocator::Residency::RecordGuard> guard(std::in_place, residency, record);
  const allocator::PinnedPayload pinned =
      residency.pinned_locked(*guard, record, record.backend().current_stream());
  *payload_bytes = bytes_of(residency.stored_locked(*guard, record), record);
  guard.reset();  // the payload is final
  const allocator::PayloadView& payload = pinned.view();
  std::optional<WidthCosts> of_payload;
  if (payload.data != nullptr && is_on_host(record)) {
    const BlockForm form = BlockForm::unpack(payload.form.words);
    if (form.bits != 0 && form.only_sides == 0) {
      of_payload = width_costs(form, payload.data, payload.bytes, record.bytes, choice);
    }
  }
  const compress::Executor& executor = runtime.codec.executor();
  // At fewer bits other lines are flat, which a payload does not tell.
  constexpr auto kNoLines = compress::block::Look::kParts;
  if (of_payload && choice.lines.look > kNoLines) {
    if (const std::optional<WidthCosts> of_values = costs_of_values(record, choice, executor)) {
      for (std::size_t i = 0; i < of_payload->size(); ++i) {
        (*of_payload)[i].possible = (*of_payload)[i].possible && (*of_values)[i].possible;
        (*of_payload)[i].payload_bytes = (*of_values)[i].payload_bytes;
      }
    }
  }
  if (of_payload) {
    return of_payload;
  }
  return is_on_host(record) ? costs_of_values(record, choice, executor)
                            : costs_on_device(record, choice, payload, executor);
}

TorchRecord& holder_of(TorchRecord& record) {
  allocator::Residency::RecordGuard guard(record.backend().residency(), record);
  return std::holds_alternative<allocator::Recomputed>(record.stored)
             ? static_cast<TorchRecord&>(*record.argument.record)
             : record;
}

// The cost at 4 bits, or at the next width that is possible; null: there is none.
const WidthCost* probed(const WidthCosts& costs) noexcept {
  const auto* const at = std::find_if(costs.begin(), costs.end(), [](const WidthCost& cost) {
    return cost.bits >= 4 && cost.possible;
  });
  return at != costs.end() ? at : nullptr;
}

// The error at 4 bits, where steps may not be as wide as that too.
double error_at_4(const WidthCost& cost) noexcept {
  const double steps = static_cast<double>((1u << cost.bits) - 1) / 15;
  return cost.squared_error * steps * steps;
}

}  // namespace

ReadLog::Seen& ReadLog::unit_of(std::uint64_t key) {
  const auto [at, is_new] = by_key_.emplace(key, units_.size());
  if (is_new) {
    units_.emplace_back().unit.row.key = key;
    units_.back().unit.row.tensors = 0;
  }
  return units_[at->second];
}

// The lookups that need no lock of ours: to restore a record may take the interpreter's, whose
// owner may be reading too.
ReadLog::Found ReadLog::look_up(TorchRecord& holder, bool living) const noexcept {
  Found found;
  found.payload_bytes = holder.bytes;
  try {
    if (!living) {
      found.decision = holder.decided();
    }
    found.fixed = fixed_reason(found.decision, living);
    if (found.fixed.empty() && costs_ == Costs::kYes) {
      found.costs = costs_of(holder, found.decision->choice, &found.payload_bytes);
    } else if (!living) {
      allocator::Residency& residency = holder.backend().residency();
      allocator::Residency::RecordGuard guard(residency, holder);
      found.payload_bytes = bytes_of(residency.stored_locked(guard, holder), holder);
    }
  } catch (...) {  // no memory: its costs are not known
  }
  return found;
}

// A record whose bytes, or whose payload, the unit is made of.
void ReadLog::add_record(Seen& seen, const Found& found) {
  ReadUnit& unit = seen.unit;
  const std::string& fixed = found.fixed;
  if (!seen.any_record || (unit.row.fixed.empty() && !fixed.empty())) {
    unit.row.fixed = fixed;
    unit.decision = found.decision.value_or(Decision());
  } else if (unit.row.fixed.empty()) {
    unit.decision = unit.decision.merged(*found.decision);
  }
  seen.any_record = true;
  if (found.costs) {
    add(seen.costs, *found.costs, !seen.any_costs);
    seen.any_costs = true;
  } else {
    seen.all_costs = false;
  }
  unit.row.payload_bytes += found.payload_bytes;
}

void ReadLog::note_read(const ReadTensor& tensor) noexcept {
  try {
    TorchRecord& record = tensor.record;
    TorchRecord& holder = tensor.living ? record : holder_of(record);
    if (!note_reader(tensor, holder)) {
      return;
    }
    const Found found = look_up(holder, tensor.living);
    const std::lock_guard guard(mutex_);
    add_record(unit_of(holder.key.value), found);
  } catch (...) {  // no memory: the row is incomplete
  }
}

// True if the holder is a new one.
bool ReadLog::note_reader(const ReadTensor& tensor, TorchRecord& holder) {
  const std::lock_guard guard(mutex_);
  TorchRecord& record = tensor.record;
  Seen& seen = unit_of(holder.key.value);
  sensitivity::Unit& row = seen.unit.row;
  const bool is_new = records_.insert(&record).second;
  if (&holder != &record && is_new) {
    row.results.push_back(record.key.value);
  }
  if (is_new) {
    row.bytes += record.bytes;
    ++row.tensors;
  }
  if (row.producer.empty() || (&holder == &record && is_new)) {
    row.producer = tensor.producer != nullptr ? shown_name(*tensor.producer) : "";
    row.shape.assign(tensor.sizes.begin(), tensor.sizes.end());
    row.type = c10::getDtypeNames(tensor.dtype.toScalarType()).first;
  }
  if (tensor.reader != nullptr) {
    add_name(row.reader, shown_name(*tensor.reader));
    auto& readers = seen.unit.readers;
    if (std::find(readers.begin(), readers.end(), tensor.reader) == readers.end()) {
      readers.push_back(tensor.reader);
    }
  }
  auto& records = seen.unit.records;
  if (std::find(records.begin(), records.end(), &holder) != records.end()) {
    return false;
  }
  records.push_back(&holder);
  return true;
}

std::vector<ReadUnit> ReadLog::take() {
  std::vector<ReadUnit> units;
  units.reserve(units_.size());
  for (Seen& seen : units_) {
    ReadUnit& unit = seen.unit;
    sensitivity::Unit& row = unit.row;
    for (const Decision::Step& step : unit.decision.trail()) {
      row.trail.push_back(step_text(step.why, step.width));
    }
    const WidthCost* const probe = probed(seen.costs);
    if (row.fixed.empty() && seen.any_costs && seen.all_costs && probe != nullptr) {
      const double at_4 = error_at_4(*probe);
      const CodecChoice& choice = unit.decision.choice;
      const bool curved = choice.steps != compress::block::Steps::kAny;
      row.floor = std::max<std::uint8_t>(choice.floor, curved ? 2 : 1);
      row.floor_reason = choice.floor > 2 ? "loss_or_exponential" : curved ? "curved" : "";
      for (const WidthCost& cost : seen.costs) {
        if (cost.possible && cost.payload_bytes < row.bytes) {
          row.costs.push_back(
              {cost.bits, cost.payload_bytes, at_4 > 0 ? cost.squared_error / at_4 : 0});
        }
      }
      row.costs.push_back({0, row.bytes, 0});
      unit.probe_bits = probe->bits;
      unit.probe_error = at_4 > 0 ? probe->squared_error / at_4 : 0;
      unit.noisy = at_4 > 0;
    } else if (row.fixed.empty() && costs_ == Costs::kNo) {
      unit.noisy = true;
    } else if (row.fixed.empty()) {
      row.fixed = "no_width";
    }
    units.push_back(std::move(unit));
  }
  units_.clear();
  return units;
}

}  // namespace pleat::bridge
