// Tensors on the simulated device: for access by the host, and for the oracle.
#pragma once

#include <ATen/ATen.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "tests/simulated_cuda/operations.h"

namespace pleat::simulated {

inline constexpr std::size_t kMostRuns = 1024;

inline bool on_device(const at::Tensor& tensor) { return tensor.defined() && tensor.is_cuda(); }

inline at::Tensor alias_of(const at::Tensor& tensor) {
  if (!on_device(tensor)) return tensor;
  const c10::StorageImpl* const storage =
      tensor.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl();
  void* const data = const_cast<void*>(storage->data());
  c10::Storage host(
      c10::Storage::use_byte_size_t(), storage->nbytes(),
      c10::DataPtr(data != nullptr ? simulated_cuda_alias(data) : nullptr, c10::Device(c10::kCPU)),
      nullptr, false);
  auto twin = at::detail::make_tensor<c10::TensorImpl>(
      std::move(host), c10::DispatchKeySet(c10::DispatchKey::CPU), tensor.dtype());
  c10::TensorImpl* const impl = twin.unsafeGetTensorImpl();
  impl->set_sizes_and_strides(tensor.sizes(), tensor.strides(), tensor.storage_offset());
  if (tensor.unsafeGetTensorImpl()->is_wrapped_number()) impl->set_wrapped_number(true);
  if (tensor.is_conj()) twin._set_conj(true);
  if (tensor.is_neg()) twin._set_neg(true);
  return twin;
}

// The bytes of a tensor, run by run; only some of them for a tensor of very many runs. The oracle
// can then miss an access, but never objects wrongly.
inline void add_accesses(const at::Tensor& tensor, bool writes,
                         std::vector<SimulatedAccess>* accesses) {
  if (!on_device(tensor) || tensor.numel() == 0) return;
  const auto width = static_cast<std::int64_t>(tensor.element_size());
  std::vector<std::pair<std::int64_t, std::int64_t>> dims;  // stride and size, the densest first
  for (std::int64_t d = 0; d < tensor.dim(); ++d)
    if (tensor.size(d) != 1 && tensor.stride(d) != 0)
      dims.emplace_back(tensor.stride(d), tensor.size(d));
  std::sort(dims.begin(), dims.end());
  std::int64_t run = 1;
  std::size_t outer = 0;
  while (outer < dims.size() && dims[outer].first == run) run *= dims[outer++].second;
  std::int64_t runs = 1;
  for (std::size_t d = outer; d < dims.size(); ++d) runs *= dims[d].second;
  const std::int64_t step = (runs + kMostRuns - 1) / static_cast<std::int64_t>(kMostRuns);
  const char* const begin = static_cast<const char*>(tensor.const_data_ptr());
  for (std::int64_t r = 0; r < runs; r += step) {
    std::int64_t offset = 0, rest = r;
    for (std::size_t d = outer; d < dims.size(); ++d) {
      offset += rest % dims[d].second * dims[d].first;
      rest /= dims[d].second;
    }
    accesses->push_back({begin + offset * width, static_cast<std::size_t>(run * width), writes});
  }
}

}  // namespace pleat::simulated
