// The trace that is being written, if any: from the events of all heaps to the recorder.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "allocator/blocks/block.h"
#include "allocator/heap.h"
#include "torch_bridge/c_abi.h"
#include "torch_bridge/core/options.h"
#include "torch_bridge/core/reasons.h"
#include "torch_bridge/core/runtime.h"

namespace pleat::bridge {

// Begins a trace into the file that `pattern` means (trace/file.h). False: there is none, and
// `problem` says why in one line. From any thread.
enum class Taken : std::uint8_t {
  kIsAnError,
  kUseAnother,  // the process takes another name: children and ranks have the same options
};
bool start_trace(Runtime& runtime, const std::string& pattern, Taken taken, std::string& problem);
// Ends the trace. False: there was none.
bool stop_trace(Runtime& runtime) noexcept;
// Of the trace that is being written; else empty.
[[nodiscard]] std::string trace_path();
// Ends it and says where it is, if the command `pleat trace record` began it. At the end of the
// process.
void finish_trace(Runtime& runtime) noexcept;
// In a forked child, which is to write nothing, once no other thread counts.
void abandon_trace(Runtime& runtime) noexcept;

// A heap that is new: its events belong to the trace as well.
void trace_heap(allocator::Heap& heap) noexcept;
// What a block of the host is.
void trace_label(const allocator::Block& block, PleatTraceLabel label) noexcept;
// How a saved storage is to be coded: why it is exact, or its bits, how many it needs however few
// are asked for, and how many elements they are of.
void trace_decided(const allocator::Record& record, std::int32_t device, Exactness why,
                   unsigned bits, unsigned least_bits, std::size_t elements) noexcept;
// A save of it may bear noise, as a node of the class shows. May be called under locks of ours.
void trace_proved(const allocator::Record& record, std::int32_t device,
                  std::string_view node_class) noexcept;
// A tensor is saved whose storage gets no record. `block`: where it lies; null: in none of ours.
void trace_left(Reason why, std::int32_t device, const allocator::Block* block,
                std::size_t bytes) noexcept;
// What it would become, where nothing is coded.
void trace_planned(const allocator::Record& record, std::int32_t device, PleatTracePlan plan,
                   std::size_t payload_bytes) noexcept;

}  // namespace pleat::bridge
