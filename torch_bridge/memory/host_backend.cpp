#include "torch_bridge/memory/backends.h"

#include <c10/core/CPUAllocator.h>

#include <cstring>

#include "torch_bridge/memory/cpu_allocator.h"
#include "torch_bridge/torch_access/memory_error.h"
#include "torch_bridge/trace/out_of_memory_report.h"

namespace pleat::bridge {

allocator::Block* HostBackend::block_of(const c10::StorageImpl& storage) const noexcept {
  const at::DataPtr& data = storage.data_ptr();
  if (data.get_deleter() != &cpu_deleter || data.get() != data.get_context()) return nullptr;
  allocator::Block* const block = pool_.find(data.get());
  return block != nullptr && storage.nbytes() <= block->requested ? block : nullptr;
}

StoragePtr HostBackend::wrap(allocator::Block* block, std::size_t bytes) const {
  return c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(), bytes,
                                               data_over(block, bytes), cpu_allocator(),
                                               /*resizable=*/true);
}

c10::Storage HostBackend::copy(const c10::Storage& storage, allocator::ByteRange range,
                               allocator::StreamId /*stream*/) const {
  const std::size_t bytes = range.end - range.begin;
  c10::Storage copy(c10::Storage::use_byte_size_t(), bytes, cpu_allocator(), /*resizable=*/true);
  std::memcpy(copy.mutable_data(), static_cast<const char*>(storage.data()) + range.begin, bytes);
  return copy;
}

void HostBackend::throw_out_of_memory(std::size_t bytes, const char* purpose) const {
  report_out_of_memory(bytes, allocator::HeapTable::kHost);
  bridge::throw_out_of_memory(bytes, purpose);
}

}  // namespace pleat::bridge
