// The oracle: the last readers and writers of each byte of device memory, and the allocated blocks.
// It objects to two accesses, one of them a write, if neither happens before the other, even if the
// values of this run do not show it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "tests/simulated_cuda/vector_clock.h"

namespace pleat::simulated {

struct Access {
  const void* address = nullptr;
  std::size_t bytes = 0;
  bool writes = false;
};

// Not thread-safe: called with the simulation's lock held.
class Ledger {
 public:
  // Records an operation at `epoch`; `known` is the set of earlier operations.
  //   `what`      its name, for reports
  //   in_a_graph  its blocks can have been freed meanwhile: a graph keeps addresses
  void note(Epoch epoch, const VectorClock& known, const std::string& what,
            std::span<const Access> accesses, bool in_a_graph);
  // A caller with the order `known` removes the memory: like a write without successors.
  void vanish(const VectorClock& known, const std::string& what, const void* address,
              std::size_t bytes);

  // All earlier operations on the memory become known to every stream.
  void forget(const void* address, std::size_t bytes);

  // An allocator over the driver's memory hands out a block, or takes it back. `checked` is false
  // for blocks that return by themselves: private pools of graphs.
  void hand_out(const void* address, std::size_t bytes, bool checked);
  void take_back(const void* address, bool checked);

  void object(std::string report);
  [[nodiscard]] const std::vector<std::string>& reports() const { return reports_; }
  // The number of all objections, including repeated ones.
  [[nodiscard]] std::size_t objections() const { return objections_; }

 private:
  struct Past {
    Epoch epoch;
    std::uint32_t name = 0;
  };
  struct Piece {
    std::uintptr_t end = 0;
    Past write;
    std::vector<Past> reads;  // since the write, the last read of each stream
  };
  using Pieces = std::map<std::uintptr_t, Piece>;
  struct Block {
    std::uintptr_t end = 0;
    bool live = false;
    bool checked = false;
  };
  using Blocks = std::map<std::uintptr_t, Block>;

  std::uint32_t name_of(const std::string& what);
  // The first piece at or after `at`; a piece that contains `at` is cut there.
  Pieces::iterator cut(std::uintptr_t at);
  void compare(const Past& before, bool before_writes, const VectorClock& known, Epoch epoch,
               const std::string& what, bool writes);
  void read(std::uintptr_t begin, std::uintptr_t end, const Past& past);
  void check_life(std::uintptr_t begin, std::uintptr_t end, const std::string& what);
  // Removes blocks, or their parts inside [begin, end).
  void clear_blocks(std::uintptr_t begin, std::uintptr_t end);

  Pieces pieces_;
  Blocks blocks_;
  std::vector<std::string> names_;
  std::map<std::string, std::uint32_t> numbers_;
  std::vector<std::string> reports_;
  std::set<std::string> seen_;
  std::size_t objections_ = 0;
};

}  // namespace pleat::simulated
