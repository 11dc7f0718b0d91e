// Memory of the recorder's own: mappings, so that nothing here asks the job's allocator. What was
// mapped is never unmapped, as threads may look at it at any time.
#pragma once

#include <sys/mman.h>

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace pleat::trace {

// `bytes` of zeros, whose pages come with the first touch; null if there is no room.
[[nodiscard]] inline void* map_zeros(std::size_t bytes) noexcept {
  void* const at = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return at == MAP_FAILED ? nullptr : at;
}

// An array to whose end one thread at a time adds, and which any thread reads meanwhile.
template <class Entry>
class GrowingArray {
 public:
  // False: no room for `most` entries.
  bool open(std::size_t most) noexcept {
    if (entries_ == nullptr) {
      entries_ = static_cast<Entry*>(map_zeros(most * sizeof(Entry)));
      most_ = entries_ != nullptr ? most : 0;
    }
    return entries_ != nullptr;
  }
  // False: it is full.
  bool add(const Entry& entry) noexcept {
    const std::size_t size = size_.load(std::memory_order_relaxed);
    if (size == most_) return false;
    entries_[size] = entry;
    size_.store(size + 1, std::memory_order_release);
    return true;
  }
  [[nodiscard]] std::size_t size() const noexcept { return size_.load(std::memory_order_acquire); }
  [[nodiscard]] const Entry& operator[](std::size_t i) const noexcept { return entries_[i]; }

 private:
  Entry* entries_ = nullptr;
  std::size_t most_ = 0;
  std::atomic<std::size_t> size_{0};
};

// Bytes that one thread collects.
class ByteBuffer {
 public:
  // Room for `more` bytes behind the end; null if there is no memory.
  [[nodiscard]] std::uint8_t* reserve(std::size_t more) noexcept {
    if (size_ + more > room_) {
      std::size_t wanted = room_ != 0 ? 2 * room_ : std::size_t{1} << 16;
      while (wanted < size_ + more) wanted *= 2;
      void* const moved =
          data_ == nullptr ? map_zeros(wanted) : ::mremap(data_, room_, wanted, MREMAP_MAYMOVE);
      if (moved == nullptr || moved == MAP_FAILED) return nullptr;
      data_ = static_cast<std::uint8_t*>(moved);
      room_ = wanted;
    }
    return data_ + size_;
  }
  void advance(std::size_t bytes) noexcept { size_ += bytes; }
  void clear() noexcept { size_ = 0; }
  [[nodiscard]] std::uint8_t* data() noexcept { return data_; }
  [[nodiscard]] std::size_t size() const noexcept { return size_; }

 private:
  std::uint8_t* data_ = nullptr;
  std::size_t size_ = 0;
  std::size_t room_ = 0;
};

}  // namespace pleat::trace
