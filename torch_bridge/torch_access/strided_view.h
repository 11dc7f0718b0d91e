// StridedView describes a saved tensor's view of its storage, and makes the same view on another
// one. It lists the bytes that the view covers.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/DispatchKeySet.h>
#include <c10/core/Storage.h>
#include <c10/core/TensorImpl.h>
#include <c10/util/DimVector.h>

#include <cstddef>
#include <cstdint>
#include <utility>

#include "allocator/store/byte_ranges.h"

namespace pleat::bridge {

class StridedView {
 public:
  StridedView() = default;
  // For a plain strided tensor of any device. Keeps its conjugate and negative bits, not its
  // autograd keys.
  explicit StridedView(const c10::TensorImpl& tensor);

  // The range from the first to the last byte that the view covers.
  [[nodiscard]] allocator::ByteRange hull() const noexcept;

  // The bytes that the view covers, at most.
  [[nodiscard]] std::size_t touched_bytes() const noexcept;

  // True if the view is every byte of a storage of `storage_bytes`, in row-major order, neither
  // conjugate nor negative.
  [[nodiscard]] bool is_whole_in_order(std::size_t storage_bytes) const noexcept;

  // The view on `storage`: a tensor of its own, outside autograd and inference mode, whose writes
  // `version` counts.
  [[nodiscard]] at::Tensor on(c10::Storage storage, const c10::VariableVersion& version) const {
    return on(std::move(storage), version, offset_);
  }
  // The same view on a storage that holds only the hull.
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

// Adds the byte ranges of a storage of `storage_bytes` that a view on it covers: exact while they
// are few, else one range from the first to the last byte.
void add_ranges(const c10::TensorImpl& view, std::size_t storage_bytes,
                allocator::ByteRanges& ranges) noexcept;

}  // namespace pleat::bridge
