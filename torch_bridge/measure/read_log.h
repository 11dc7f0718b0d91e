// Logs the saved tensors that a backward pass reads. Each has a row of the profile, the records
// behind it, and the nodes that read it. The costs of all widths are looked up while the payloads
// are there.
#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "compress/block/width_costs.h"
#include "sensitivity/profile.h"
#include "torch_bridge/memory/torch_record.h"
#include "torch_bridge/torch_access/pass_state.h"

namespace pleat::bridge {

// All that a pass reads of one key; of a result that is recomputed, the key of its argument.
struct ReadUnit {
  sensitivity::Unit row;
  // Whose payloads or raw bytes give the values; alive as long as the graph is.
  std::vector<TorchRecord*> records;
  std::vector<const torch::autograd::Node*> readers;  // compare only
  Decision decision;                                  // of all records, the most careful
  bool noisy = false;                                 // noise may be added
  std::uint8_t probe_bits = 4;                        // whose noise is added: 4, or its floor
  double probe_error = 0;  // squared error at these bits, as a multiple of that at 4
};

class ReadLog final : public PassWatch {
 public:
  // Whether the costs of widths are looked up. Without them no unit counts as noisy but by what is
  // allowed.
  enum class Costs : bool { kNo, kYes };
  explicit ReadLog(Costs costs = Costs::kYes) noexcept : costs_(costs) {}

  void note_read(const ReadTensor& tensor) noexcept override;
  void note_recorded() noexcept override { recorded_ = true; }

  // After the pass: in the order of their first reads.
  [[nodiscard]] std::vector<ReadUnit> take();
  // Something was recorded while the pass ran.
  [[nodiscard]] bool recorded() const noexcept { return recorded_; }

 private:
  struct Seen {  // of one unit, until take()
    ReadUnit unit;
    compress::block::WidthCosts costs{};
    bool any_record = false, any_costs = false, all_costs = true;
  };
  struct Found {  // of one record
    std::optional<Decision> decision;
    std::string fixed;
    std::optional<compress::block::WidthCosts> costs;
    std::size_t payload_bytes = 0;
  };
  Found look_up(TorchRecord& holder, bool living) const noexcept;
  [[nodiscard]] bool note_reader(const ReadTensor& tensor, TorchRecord& holder);
  // Under the mutex.
  Seen& unit_of(std::uint64_t key);
  static void add_record(Seen& seen, const Found& found);

  const Costs costs_;
  std::mutex mutex_;
  std::vector<Seen> units_;
  std::unordered_map<std::uint64_t, std::size_t> by_key_;
  std::unordered_set<const TorchRecord*> records_;
  bool recorded_ = false;
};

}  // namespace pleat::bridge
