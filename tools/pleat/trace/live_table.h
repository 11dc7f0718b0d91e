// LiveTable is a MappedTable that owns its memory. Memory follows the items that live, not those
// that have been: ids come from a file and may be any number. Throws std::bad_alloc where there is
// no memory, so that a pass over a file ends.
#pragma once

#include <new>

#include "interpose/trace/mapped_table.h"

namespace pleat::trace {

template <class Item>
class LiveTable : public MappedTable<Item, std::size_t{1} << 22> {
  using Base = MappedTable<Item, std::size_t{1} << 22>;

 public:
  LiveTable() = default;
  LiveTable(const LiveTable&) = delete;
  LiveTable& operator=(const LiveTable&) = delete;
  ~LiveTable() { this->release(); }

  // Null: there are too many, or the id is 0.
  [[nodiscard]] Item* insert(std::uint64_t id) { return checked(Base::insert(id), id); }
  [[nodiscard]] Item* find_or_insert(std::uint64_t id) {
    return checked(Base::find_or_insert(id), id);
  }

 private:
  Item* checked(Item* item, std::uint64_t id) const {
    if (item == nullptr && id != 0 && this->size() < Base::kMost) throw std::bad_alloc();
    return item;
  }
};

}  // namespace pleat::trace
