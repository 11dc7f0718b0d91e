// Records functions that the bridge cannot look into, for users and the report of the rule for
// noise. It holds the promises of users about them, their cost, and poles that came after a proof.
// Torch-free.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "torch_bridge/core/fork_locks.h"
#include "torch_bridge/core/options.h"

namespace pleat::bridge {

// The promise of a user about a function: its gradient is linear, or nearly, in what it saves.
enum class Trust : std::uint8_t {
  kNone,
  kPasses,  // what it saves bears noise once a path from its result is closed
  kCloses,  // it mixes many elements, like a contraction with a weight: noise at once
};

// Any thread. Takes no other lock.
class ProofBook {
 public:
  // Lives for good. `name`: of its class. The bytes are of storages that were exact because the
  // function saved them, or because it reads what was made of them.
  struct Function {
    explicit Function(bool trustworthy) noexcept : may_be_trusted(trustworthy) {}
    const bool may_be_trusted;  // false: the name stands for many functions, or is no function's
    std::atomic<std::uint64_t> saved_bytes{0}, behind_bytes{0};
  };
  // Null for one name too many, and where there is no memory.
  [[nodiscard]] Function* find(std::string_view name, bool may_be_trusted) noexcept;

  // Takes the place of all names of earlier calls.
  void trust_names(std::span<const TrustedName> names);
  // `python_class`: the class of the function's nodes. The caller keeps the class alive for good,
  // so that its address is never another's.
  void trust_class(const void* python_class, Trust trust);
  [[nodiscard]] Trust trust_in(std::string_view name, const void* python_class) const noexcept;
  [[nodiscard]] bool trusts_any() const noexcept {
    return trusts_any_.load(std::memory_order_relaxed);
  }

  // A node of that name was recorded behind one whose saved tensors were noisy already.
  void add_late_pole(std::string_view pole, std::string_view saver) noexcept;

  // For the report, the largest first.
  struct FunctionCost {
    std::string name;
    std::uint64_t saved_bytes, behind_bytes;
    bool may_be_trusted;
  };
  [[nodiscard]] std::vector<FunctionCost> costs() const;
  struct LatePole {
    std::string pole, saver;
    std::uint64_t number;
  };
  [[nodiscard]] std::vector<LatePole> late_poles() const;

 private:
  static constexpr std::size_t kMost = 256;  // of each

  mutable std::mutex mutex_;  // of all below
  std::map<std::string, Function, std::less<>> functions_;
  std::map<std::string, Trust, std::less<>> by_name_;
  std::unordered_map<const void*, Trust> by_class_;
  std::map<std::pair<std::string, std::string>, std::uint64_t> late_poles_;
  std::atomic<bool> trusts_any_{false};
  ForkLock fork_lock_{ForkPlace::kProofBook, mutex_};
};

}  // namespace pleat::bridge
