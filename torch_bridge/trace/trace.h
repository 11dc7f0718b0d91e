// The trace that is being written, if any: passes the events of all heaps to the recorder.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "allocator/blocks/block.h"
#include "allocator/heap.h"
#include "torch_bridge/c_abi.h"
#include "torch_bridge/core/decision.h"
#include "torch_bridge/core/options.h"
#include "torch_bridge/core/runtime.h"

namespace pleat::bridge {

enum class Taken : std::uint8_t {
  kIsAnError,
  kUseAnother,  // the process takes another name: children and ranks have the same options
};
// Begins a trace into the file that `pattern` means (trace/file.h). False: there is none, and
// `problem` says why in one line. From any thread.
bool start_trace(Runtime& runtime, const std::string& pattern, Taken taken, std::string& problem);
// Ends the trace. False: there was none.
bool stop_trace(Runtime& runtime) noexcept;
// The path of the trace that is being written; else empty.
[[nodiscard]] std::string trace_path();
// Ends the trace at the end of the process, and prints its path if the command `pleat trace record`
// began it.
void finish_trace(Runtime& runtime) noexcept;
// Called in a forked child, which writes no trace, once no other thread counts.
void abandon_trace(Runtime& runtime) noexcept;

// Adds the events of a new heap to the trace.
void trace_heap(allocator::Heap& heap) noexcept;
// Labels a block of the host.
void trace_label(const allocator::Block& block, PleatTraceLabel label) noexcept;
// The decision about a saved storage, and again if its payload has another width.
void trace_decided(const allocator::Record& record, std::int32_t device,
                   const Decision& decision) noexcept;
// A node of the class has shown that a save of the storage can bear noise. Can be called under
// locks of Pleat's.
void trace_proved(const allocator::Record& record, std::int32_t device,
                  std::string_view node_class) noexcept;
// A tensor was saved whose storage gets no record. `block`: of Pleat's; null: in other memory.
void trace_left(Reason why, std::int32_t device, const allocator::Block* block,
                std::size_t bytes) noexcept;

}  // namespace pleat::bridge
