#include "tests/simulated_cuda/copies.h"

#include <cstring>
#include <set>
#include <vector>

#include "tests/simulated_cuda/capture.h"
#include "tests/simulated_cuda/memory.h"
#include "tests/simulated_cuda/streams.h"

namespace pleat::simulated {
namespace {

void add(std::vector<Access>* accesses, const void* address, std::size_t bytes, bool writes) {
  if (bytes != 0 && is_followed(address)) accesses->push_back({address, bytes, writes});
}

// Allocations of graphs: each launch allocates them again at the same addresses, so they last as
// long as the graph.
std::set<const void*>& of_graphs() {
  static auto* const all = new std::set<const void*>;
  return *all;
}

}  // namespace

int copy(CUstream stream, void* to, const void* from, const Rows& rows, const char* name) {
  if (rows.width == 0 || rows.height == 0) return kSuccess;
  if (!is_stream(stream)) return kInvalidHandle;
  std::vector<Access> accesses;
  for (std::size_t row = 0; row < rows.height; ++row) {
    add(&accesses, static_cast<const char*>(from) + row * rows.from_pitch, rows.width, false);
    add(&accesses, static_cast<char*>(to) + row * rows.to_pitch, rows.width, true);
  }
  const bool waits =
      !is_device_address(to) && !is_pinned(to) && stream_of(stream)->capture == nullptr;
  const int error =
      queue(stream, {name, std::move(accesses), {}, [=](std::uint64_t due) {
                       std::vector<char> row_bytes(rows.width);
                       for (std::size_t row = 0; row < rows.height; ++row) {
                         read_bytes(static_cast<const char*>(from) + row * rows.from_pitch,
                                    row_bytes.data(), rows.width);
                         write_bytes(static_cast<char*>(to) + row * rows.to_pitch, row_bytes.data(),
                                     rows.width, due);
                       }
                     }});
  if (error != kSuccess || !waits) return error;
  return synchronize(stream);
}

int copy_and_wait(void* to, const void* from, std::size_t bytes, const char* name) {
  if (const int error = forbidden_while_capturing(); error != kSuccess) return error;
  if (const int error = copy(nullptr, to, from, {bytes, 1, 0, 0}, name); error != kSuccess)
    return error;
  return synchronize(CUstream{nullptr});
}

int fill(CUstream stream, void* to, unsigned value, std::size_t width, std::size_t count,
         const char* name) {
  if (count == 0) return kSuccess;
  std::vector<Access> accesses;
  add(&accesses, to, width * count, true);
  return queue(stream, {name, std::move(accesses), {}, [=](std::uint64_t due) {
                          std::vector<char> bytes(width * count);
                          for (std::size_t i = 0; i < count; ++i)
                            std::memcpy(&bytes[i * width], &value, width);  // little-endian
                          write_bytes(to, bytes.data(), bytes.size(), due);
                        }});
}

int free_and_wait(void* address, const char* name) {
  if (address == nullptr) return kSuccess;
  const Range* const range = allocation_at(address);
  if (range == nullptr) {
    simulation().ledger.object(std::string(name) + " of memory that is not allocated");
    return kInvalidValue;
  }
  if (const int error = forbidden_while_capturing(); error != kSuccess) return error;
  synchronize_device(range->device);
  simulation().ledger.vanish(simulation().host, name, address, range->bytes);
  release(range);
  return kSuccess;
}

int allocate_on(CUstream stream, std::size_t bytes, void** address) {
  if (!is_stream(stream)) return kInvalidHandle;
  if (const int error = allocate(current_device(), bytes, address); error != kSuccess || bytes == 0)
    return error;
  if (const auto& capture = stream_of(stream)->capture; capture != nullptr) {
    of_graphs().insert(*address);
    capture->graph->memory.emplace_back(*address, [](const void* begin) {
      of_graphs().erase(begin);
      release(allocation_at(begin));
    });
  }
  // A use on another stream must come after the allocation.
  return queue(stream, {"the allocation", {{*address, bytes, true}}, {}, {}});
}

int free_on(CUstream stream, void* address, const char* name) {
  if (address == nullptr) return kSuccess;
  const Range* const range = allocation_at(address);
  if (range == nullptr) {
    simulation().ledger.object(std::string(name) + " of memory that is not allocated");
    return kInvalidValue;
  }
  if (const int error = queue(stream, {name, {{address, range->bytes, true}}, {}, {}});
      error != kSuccess)
    return error;
  if (of_graphs().contains(address)) return kSuccess;
  simulation().ledger.vanish(stream_of(stream)->clock, name, address, range->bytes);
  release(range);
  return kSuccess;
}

}  // namespace pleat::simulated
