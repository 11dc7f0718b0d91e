#include "torch_bridge/torch_access/strided_view.h"

#include <c10/core/InferenceMode.h>

#include <algorithm>
#include <utility>

namespace pleat::bridge {
namespace {

using allocator::ByteRange;

ByteRange hull_of(c10::IntArrayRef sizes, c10::IntArrayRef strides, std::int64_t offset,
                  std::size_t item) noexcept {
  std::size_t last = 0;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    last += static_cast<std::size_t>((sizes[i] - 1) * strides[i]);
  }
  const std::size_t first = static_cast<std::size_t>(offset) * item;
  return {first, first + (last + 1) * item};
}

// For every device: the bits of the backend accompany all keys that each backend has.
constexpr c10::DispatchKeySet kKept =
    c10::DispatchKeySet(c10::DispatchKeySet::RAW, c10::full_backend_mask) |
    c10::DispatchKeySet(
        {c10::DispatchKey::Dense, c10::DispatchKey::Conjugate, c10::DispatchKey::Negative});

}  // namespace

StridedView::StridedView(const c10::TensorImpl& tensor)
    : sizes_(tensor.sizes()),
      strides_(tensor.strides()),
      offset_(tensor.storage_offset()),
      dtype_(tensor.dtype()),
      keys_(c10::DispatchKeySet::RAW, tensor.key_set().raw_repr() & kKept.raw_repr()) {}

ByteRange StridedView::hull() const noexcept {
  return hull_of(sizes_, strides_, offset_, dtype_.itemsize());
}

std::size_t StridedView::touched_bytes() const noexcept {
  std::size_t bytes = dtype_.itemsize();
  for (std::size_t i = 0; i < sizes_.size(); ++i) {
    bytes *= strides_[i] != 0 ? static_cast<std::size_t>(sizes_[i]) : 1;  // 0: expanded
  }
  return bytes;
}

bool StridedView::is_whole_in_order(std::size_t storage_bytes) const noexcept {
  if (keys_.has_any(
          c10::DispatchKeySet({c10::DispatchKey::Conjugate, c10::DispatchKey::Negative}))) {
    return false;
  }
  std::int64_t elements = 1;
  for (std::size_t i = sizes_.size(); i-- > 0;) {
    if (sizes_[i] != 1 && strides_[i] != elements) {
      return false;
    }
    elements *= sizes_[i];
  }
  return offset_ == 0 && static_cast<std::size_t>(elements) * dtype_.itemsize() == storage_bytes;
}

at::Tensor StridedView::on(c10::Storage storage, const c10::VariableVersion& version,
                           std::int64_t offset) const {
  const c10::InferenceMode normal(false);  // else it would have no version
  at::Tensor tensor = at::detail::make_tensor<c10::TensorImpl>(std::move(storage), keys_, dtype_);
  c10::TensorImpl* const impl = tensor.unsafeGetTensorImpl();
  impl->set_sizes_and_strides(sizes_, strides_, offset);
  impl->set_version_counter(version);
  return tensor;
}

void add_ranges(const c10::TensorImpl& view, std::size_t storage_bytes,
                allocator::ByteRanges& ranges) noexcept {
  const std::size_t item = view.itemsize();
  if (ranges.is_all_of(storage_bytes)) {
    return;
  }
  if (view.is_contiguous() && static_cast<std::size_t>(view.numel()) * item == storage_bytes) {
    ranges.add({0, storage_bytes});
    return;
  }
  const auto sizes = view.sizes();
  const auto strides = view.strides();
  const std::size_t first = static_cast<std::size_t>(view.storage_offset()) * item;
  const ByteRange whole = hull_of(sizes, strides, view.storage_offset(), item);
  const std::size_t last = (whole.end - whole.begin) / item - 1;
  const ByteRange hull{first, std::min(storage_bytes, whole.end)};
  if (ranges.cover(hull)) {
    return;
  }
  std::size_t touched = 1;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    touched *= strides[i] == 0 ? 1 : static_cast<std::size_t>(sizes[i]);
  }
  if (touched == last + 1 || view.is_contiguous()) {
    ranges.add(hull);
    return;
  }
  // Not dense: try runs along one outer dimension; more intricate views get the hull.
  std::size_t widest = 0;
  for (std::size_t i = 1; i < sizes.size(); ++i) {
    if (sizes[i] > 1 && strides[i] * (sizes[i] - 1) > strides[widest] * (sizes[widest] - 1)) {
      widest = i;
    }
  }
  const auto runs = static_cast<std::size_t>(sizes[widest]);
  const auto step = static_cast<std::size_t>(strides[widest]);
  const std::size_t run = last - (runs - 1) * step + 1;
  if (runs > allocator::ByteRanges::kMost || run >= step) {
    ranges.add(hull);
    return;
  }
  for (std::size_t i = 0; i < runs; ++i) {
    const std::size_t begin = first + i * step * item;
    ranges.add({begin, std::min(storage_bytes, begin + run * item)});
  }
}

}  // namespace pleat::bridge
