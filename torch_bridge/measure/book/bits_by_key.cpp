#include "torch_bridge/measure/book/bits_by_key.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace pleat::bridge {

void BitsByKey::set_table(std::span<const Entry> entries) {
  if (entries.empty() && table_.load(std::memory_order_relaxed) == nullptr) {
    return;
  }
  Table sorted(entries.begin(), entries.end());
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const Entry& a, const Entry& b) { return a.key < b.key; });
  Table table;
  table.reserve(sorted.size());
  for (const Entry& entry : sorted) {
    if (!table.empty() && table.back().key == entry.key) {
      table.back() = entry;
    } else {
      table.push_back(entry);
    }
  }
  const Table* const present = table_.load(std::memory_order_relaxed);
  if (present != nullptr && *present == table) {
    return;  // as most often when nothing is new
  }
  tables_.push_back(std::make_unique<const Table>(std::move(table)));
  table_.store(tables_.back().get(), std::memory_order_release);
}

BitsByKey::Entry BitsByKey::entry_in(const Table& table, const Entry& otherwise) noexcept {
  const auto found = std::ranges::lower_bound(table, otherwise.key, {}, &Entry::key);
  return found != table.end() && found->key == otherwise.key ? *found : otherwise;
}

}  // namespace pleat::bridge
