// Vector clocks: for a stream, event or host, the number of each stream's operations that it knows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace pleat::simulated {

// One operation: the `count`-th of stream `stream`. Stream numbers are never reused.
struct Epoch {
  std::uint32_t stream = 0;
  std::uint64_t count = 0;  // 0: no operation
};

class VectorClock {
 public:
  // True if the operation happens before the clock's next operation.
  [[nodiscard]] bool has(Epoch epoch) const {
    return epoch.count == 0 ||
           (epoch.stream < counts_.size() && counts_[epoch.stream] >= epoch.count);
  }
  void join(const VectorClock& other) {
    if (counts_.size() < other.counts_.size()) counts_.resize(other.counts_.size());
    for (std::size_t i = 0; i < other.counts_.size(); ++i)
      if (counts_[i] < other.counts_[i]) counts_[i] = other.counts_[i];
  }
  // Adds an operation of `stream`.
  Epoch next(std::uint32_t stream) {
    if (counts_.size() <= stream) counts_.resize(stream + 1);
    return {stream, ++counts_[stream]};
  }
  void clear() { counts_.clear(); }

 private:
  std::vector<std::uint64_t> counts_;
};

}  // namespace pleat::simulated
