#include "torch_bridge/memory/cpu_allocator.h"

#include <c10/core/CPUAllocator.h>
#include <malloc.h>

#include <cstdint>
#include <cstring>

#include "torch_bridge/trace/out_of_memory_report.h"
#include "torch_bridge/trace/state.h"

namespace pleat::bridge {
namespace {

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
  explicit CpuAllocator(c10::Allocator& previous)
      : previous_(previous),
        previous_deleter_(previous.raw_deleter()),
        previous_is_malloc_(&previous == c10::GetDefaultCPUAllocator()) {}

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

  // Memory of the previous allocator: foreign, or freed twice. Its owner reports that as in stock.
  void free_previous(void* pointer) const {
    if (tracing() && previous_is_malloc_) [[unlikely]]
      count_small(pointer, -1);
    previous_deleter_(pointer);
  }

  c10::DeleterFnPtr raw_deleter() const override { return &cpu_deleter; }

  void copy_data(void* destination, const void* source, std::size_t count) const override {
    std::memcpy(destination, source, count);
  }

 private:
  c10::DataPtr previous_memory(std::size_t bytes) const {
    for (bool again = false;; again = true) {
      try {
        return previous_.allocate(bytes);
      } catch (...) {
        if (!again && Runtime::get()->pool.make_room_for_others()) continue;
        // Sizes below zero are a mistake of the caller.
        if (static_cast<std::ptrdiff_t>(bytes) > 0)
          report_out_of_memory(bytes, allocator::HeapTable::kHost);
        throw;
      }
    }
  }
  // The previous allocator's memory under Pleat's deleter, so that raw_deallocate() finds one
  // deleter for every size.
  c10::DataPtr from_previous(std::size_t bytes) const {
    c10::DataPtr data = previous_memory(bytes);
    if (tracing() && previous_is_malloc_) [[unlikely]]
      count_small(data.get(), 1);
    (void)data.compare_exchange_deleter(previous_deleter_, &cpu_deleter);  // unless special
    return data;
  }

  // The allocator in force before Pleat's.
  c10::Allocator& previous_;
  const c10::DeleterFnPtr previous_deleter_;
  const bool previous_is_malloc_;  // its memory comes from malloc
};

// Set by the installation. Leaked: storages point to it until the process ends.
constinit CpuAllocator* the_allocator = nullptr;

}  // namespace

void cpu_deleter(void* pointer) {
  Runtime* const runtime = Runtime::get();
  if (allocator::Block* const block = runtime->pool.find(pointer)) {
    c10::profiledCPUMemoryReporter().Delete(pointer);
    runtime->residency.release(block);
    return;
  }
  the_allocator->free_previous(pointer);
}

c10::DataPtr data_over(allocator::Block* block, std::size_t bytes) {
  c10::profiledCPUMemoryReporter().New(block->begin, bytes);
  return {block->begin, block->begin, &cpu_deleter, c10::Device(c10::DeviceType::CPU)};
}

c10::Allocator* cpu_allocator() noexcept { return the_allocator; }

void install_cpu_allocator() {
  the_allocator = new CpuAllocator(*c10::GetAllocator(c10::DeviceType::CPU));
  c10::SetCPUAllocator(the_allocator, 255);
}

}  // namespace pleat::bridge
