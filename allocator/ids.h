// Strong ids are distinct types for numbers that must not be mixed up.
#pragma once

#include <compare>
#include <cstdint>

namespace pleat::allocator {

struct DeviceIndex {
  std::int32_t value = 0;
  auto operator<=>(const DeviceIndex&) const = default;
};

// A queue of work that runs in order. The host has exactly one, with value 0.
struct StreamId {
  std::uint64_t value = 0;
  auto operator<=>(const StreamId&) const = default;
};

// Unique over the life of the process; addresses are reused, block ids are not.
struct BlockId {
  std::uint64_t value = 0;
  auto operator<=>(const BlockId&) const = default;
};

// Unique over the life of the process, like BlockId; 0: no record.
struct RecordId {
  std::uint64_t value = 0;
  auto operator<=>(const RecordId&) const = default;
};

// Identity of a saved tensor across steps. Computed by sensitivity/, opaque here.
struct TensorKey {
  std::uint64_t value = 0;
  auto operator<=>(const TensorKey&) const = default;
};

}  // namespace pleat::allocator
