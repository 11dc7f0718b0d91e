// LiveTable is a MappedTable that owns its memory. Memory follows the items that live, not those
// that have been: ids come from a file and may be any number.
#pragma once

#include <utility>

#include "interpose/trace/mapped_table.h"

namespace pleat::trace {

template <class Item>
class LiveTable : public MappedTable<Item> {
 public:
  LiveTable() = default;
  LiveTable(LiveTable&& other) noexcept : MappedTable<Item>(std::exchange(base(other), {})) {}
  LiveTable& operator=(LiveTable&& other) noexcept {
    std::swap(base(*this), base(other));
    return *this;
  }
  ~LiveTable() { this->release(); }

 private:
  static MappedTable<Item>& base(LiveTable& table) noexcept { return table; }
};

}  // namespace pleat::trace
