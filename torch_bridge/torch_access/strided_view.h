// How a saved tensor lay on its storage: which bytes it touched, and the same view made again on a
// storage that was restored.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/DispatchKeySet.h>
#include <c10/core/Storage.h>
#include <c10/core/TensorImpl.h>
#include <c10/util/DimVector.h>

#include <cstddef>
#include <cstdint>
#include <utility>

#include "allocator/residency/byte_ranges.h"

namespace pleat::bridge {

class StridedView {
 public:
  StridedView() = default;
  // Of a plain strided tensor of any device. Its conjugate and negative bits are kept, its autograd
  // keys are not.
  explicit StridedView(const c10::TensorImpl& tensor);

  // The range from the first to the last byte that the view touches.
  [[nodiscard]] allocator::ByteRange hull() const noexcept;

  // The bytes that the view touches, at most.
  [[nodiscard]] std::size_t touched_bytes() const noexcept;

  // True if the view is every byte of a storage of `storage_bytes`, in row-major order, neither
  // conjugate nor negative.
  [[nodiscard]] bool is_whole_in_order(std::size_t storage_bytes) const noexcept;

  // The view made again on `storage`: a tensor of its own, outside autograd and inference mode,
  // whose writes `version` counts.
  [[nodiscard]] at::Tensor on(c10::Storage storage, const c10::VariableVersion& version) const {
    return on(std::move(storage), version, offset_);
  }
  // The same view on a storage that holds the hull alone.
  [[nodiscard]] at::Tensor on_hull(c10::Storage storage,
                                   const c10::VariableVersion& version) const {
    return on(std::move(storage), version, 0);
  }

  [[nodiscard]] c10::IntArrayRef sizes() const noexcept { return sizes_; }
  [[nodiscard]] caffe2::TypeMeta dtype() const noexcept { return dtype_; }

 private:
  at::Tensor on(c10::Storage storage, const c10::VariableVersion& version,
                std::int64_t offset) const;

  c10::DimVector sizes_, strides_;
  std::int64_t offset_ = 0;
  caffe2::TypeMeta dtype_;
  c10::DispatchKeySet keys_;
};

// Adds the byte ranges of a storage of `storage_bytes` that a view on it touches: exact while they
// are few, else the one range from its first to its last byte.
void add_ranges(const c10::TensorImpl& view, std::size_t storage_bytes,
                allocator::ByteRanges& ranges) noexcept;

}  // namespace pleat::bridge
