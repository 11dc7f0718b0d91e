#include "torch_bridge/core/proof_book.h"

#include <algorithm>

namespace pleat::bridge {

ProofBook::Function* ProofBook::find(std::string_view name, bool may_be_trusted) noexcept {
  try {
    const std::lock_guard<std::mutex> guard(mutex_);
    if (const auto known = functions_.find(name); known != functions_.end()) {
      return &known->second;
    }
    if (functions_.size() == kMost) {
      return nullptr;
    }
    return &functions_.try_emplace(std::string(name), may_be_trusted).first->second;
  } catch (...) {
    return nullptr;
  }
}

void ProofBook::trust_names(std::span<const TrustedName> names) {
  constexpr std::string_view kOfNode = "Backward";
  std::map<std::string, Trust, std::less<>> by_name;
  const auto add = [&](std::string_view name, bool closes) {
    Trust& trust = by_name[std::string(name)];
    trust = std::max(trust, closes ? Trust::kCloses : Trust::kPasses);
  };
  for (const TrustedName& trusted : names) {
    std::string_view name = trusted.name;
    add(name, trusted.closes);
    if (name.size() > kOfNode.size() && name.ends_with(kOfNode)) {  // a node's, or a class's own
      name.remove_suffix(kOfNode.size());
      add(name, trusted.closes);
    }
  }
  const std::lock_guard<std::mutex> guard(mutex_);
  by_name_ = std::move(by_name);
  trusts_any_.store(!by_name_.empty() || !by_class_.empty(), std::memory_order_relaxed);
}

void ProofBook::trust_class(const void* python_class, Trust trust) {
  const std::lock_guard<std::mutex> guard(mutex_);
  by_class_[python_class] = trust;
  trusts_any_.store(true, std::memory_order_relaxed);
}

Trust ProofBook::trust_in(std::string_view name, const void* python_class) const noexcept {
  const std::lock_guard<std::mutex> guard(mutex_);
  const auto of_name = by_name_.find(name);
  const auto of_class = by_class_.find(python_class);
  return std::max(of_name != by_name_.end() ? of_name->second : Trust::kNone,
                  of_class != by_class_.end() ? of_class->second : Trust::kNone);
}

void ProofBook::add_late_pole(std::string_view pole, std::string_view saver) noexcept {
  try {
    std::pair<std::string, std::string> key(pole, saver);
    const std::lock_guard<std::mutex> guard(mutex_);
    if (late_poles_.size() < kMost || late_poles_.contains(key)) {
      ++late_poles_[std::move(key)];
    }
  } catch (...) {  // no memory: not named
  }
}

std::vector<ProofBook::FunctionCost> ProofBook::costs() const {
  std::vector<FunctionCost> costs;
  {
    const std::lock_guard<std::mutex> guard(mutex_);
    for (const auto& [name, function] : functions_) {
      const std::uint64_t saved = function.saved_bytes.load(std::memory_order_relaxed);
      const std::uint64_t behind = function.behind_bytes.load(std::memory_order_relaxed);
      if (saved + behind != 0) {
        costs.push_back({name, saved, behind, function.may_be_trusted});
      }
    }
  }
  std::stable_sort(costs.begin(), costs.end(), [](const auto& a, const auto& b) {
    return a.saved_bytes + a.behind_bytes > b.saved_bytes + b.behind_bytes;
  });
  return costs;
}

std::vector<ProofBook::LatePole> ProofBook::late_poles() const {
  std::vector<LatePole> late;
  {
    const std::lock_guard<std::mutex> guard(mutex_);
    for (const auto& [names, number] : late_poles_) {
      late.push_back({names.first, names.second, number});
    }
  }
  std::stable_sort(late.begin(), late.end(),
                   [](const auto& a, const auto& b) { return a.number > b.number; });
  return late;
}

}  // namespace pleat::bridge
