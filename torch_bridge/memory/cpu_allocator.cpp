#include "torch_bridge/memory/cpu_allocator.h"

#include <c10/core/CPUAllocator.h>
#include <malloc.h>

#include <cstdint>
#include <cstring>

#include "torch_bridge/trace/state.h"
#include "torch_bridge/trace/out_of_memory_report.h"

namespace pleat::bridge {
namespace {

// The allocator in force before Pleat's, and the deleter of its memory.
struct {
  c10::Allocator* allocator = nullptr;
  c10::DeleterFnPtr deleter = nullptr;
  bool is_malloc = false;  // its memory comes from malloc
} previous;

// For a trace: malloc's bytes for a tensor that is too small for Pleat, including malloc's header.
void count_small(void* pointer, std::int64_t sign) noexcept {
  const PleatRecorder* const recorder = trace_recorder();
  if (recorder == nullptr || pointer == nullptr) return;
  const TraceCost::Timed timed(trace_state.small);
  recorder->small(sign *
                  static_cast<std::int64_t>(::malloc_usable_size(pointer) + sizeof(std::size_t)));
}

class CpuAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(std::size_t bytes) override {
    Runtime& runtime = *Runtime::get();
    if (bytes < runtime.min_bytes.load(std::memory_order_relaxed) || bytes == 0) [[likely]] {
      return from_previous(bytes);
    }
    allocator::Block* const block = runtime.host.allocate(bytes);
    if (block == nullptr) {
      return from_previous(bytes);  // raises stock's own error if it fails too
    }
    return data_over(block, bytes);
  }

  c10::DeleterFnPtr raw_deleter() const override { return &cpu_deleter; }

  void copy_data(void* destination, const void* source, std::size_t count) const override {
    std::memcpy(destination, source, count);
  }

 private:
  static c10::DataPtr previous_memory(std::size_t bytes) {
    try {
      return previous.allocator->allocate(bytes);
    } catch (...) {
      // Sizes below zero are a mistake of the caller.
      if (static_cast<std::ptrdiff_t>(bytes) > 0)
        report_out_of_memory(bytes, allocator::HeapTable::kHost);
      throw;
    }
  }
  // The previous allocator's memory under Pleat's deleter, so that raw_deallocate() finds one
  // deleter for every size.
  static c10::DataPtr from_previous(std::size_t bytes) {
    c10::DataPtr data = previous_memory(bytes);
    if (tracing() && previous.is_malloc) [[unlikely]]
      count_small(data.get(), 1);
    (void)data.compare_exchange_deleter(previous.deleter,
                                        &cpu_deleter);  // unless special
    return data;
  }
};

CpuAllocator& the_allocator() {
  static auto* const a = new CpuAllocator;  // leaked: storages point to it until the process ends
  return *a;
}

}  // namespace

void cpu_deleter(void* pointer) {
  Runtime* const runtime = Runtime::get();
  if (allocator::Block* const block = runtime->pool.find(pointer)) {
    c10::profiledCPUMemoryReporter().Delete(pointer);
    runtime->residency.release(block);
    return;
  }
  if (tracing() && previous.is_malloc) [[unlikely]]
    count_small(pointer, -1);
  previous.deleter(pointer);  // foreign, or freed twice: its owner reports that as in stock
}

c10::DataPtr data_over(allocator::Block* block, std::size_t bytes) {
  c10::profiledCPUMemoryReporter().New(block->begin, bytes);
  return {block->begin, block->begin, &cpu_deleter, c10::Device(c10::DeviceType::CPU)};
}

c10::Allocator* cpu_allocator() noexcept { return &the_allocator(); }

void install_cpu_allocator(Runtime&) {
  previous.allocator = c10::GetAllocator(c10::DeviceType::CPU);
  previous.deleter = previous.allocator->raw_deleter();
  previous.is_malloc = previous.allocator == c10::GetDefaultCPUAllocator();
  c10::SetCPUAllocator(&the_allocator(), 255);
}

}  // namespace pleat::bridge
