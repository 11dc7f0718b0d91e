// What lives now, by an id that is not 0. Memory follows what lives, not what has been: ids come
// from a file and may be any number.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace pleat::trace {

template <class Item>
class LiveTable {
 public:
  static constexpr std::size_t kMost = 1u << 22;

  [[nodiscard]] Item* find(std::uint64_t id) noexcept {
    return const_cast<Item*>(static_cast<const LiveTable&>(*this).find(id));
  }
  [[nodiscard]] const Item* find(std::uint64_t id) const noexcept {
    if (count_ == 0 || id == 0) return nullptr;
    for (std::size_t place = home(id);; place = (place + 1) & mask_) {
      if (places_[place].id == id) return &items_[places_[place].item];
      if (places_[place].id == 0) return nullptr;
    }
  }
  // A new item for an id that has none; null: there are too many. Pointers to others are void.
  [[nodiscard]] Item* insert(std::uint64_t id) {
    if (count_ >= kMost || id == 0) return nullptr;
    if ((count_ + 1) * 2 > places_.size()) grow();
    std::size_t place = home(id);
    while (places_[place].id != 0) place = (place + 1) & mask_;
    std::uint32_t item;
    if (free_.empty()) {
      item = static_cast<std::uint32_t>(items_.size());
      items_.emplace_back();
    } else {
      item = free_.back();
      free_.pop_back();
      items_[item] = Item{};
    }
    places_[place] = {id, item};
    ++count_;
    return &items_[item];
  }
  // Null as insert() says; pointers to others are void if it is new.
  [[nodiscard]] Item* find_or_insert(std::uint64_t id) {
    Item* const known = find(id);
    return known != nullptr ? known : insert(id);
  }
  void erase(std::uint64_t id) noexcept {
    if (count_ == 0 || id == 0) return;
    std::size_t hole = home(id);
    while (places_[hole].id != id) {
      if (places_[hole].id == 0) return;
      hole = (hole + 1) & mask_;
    }
    free_.push_back(places_[hole].item);
    --count_;
    // What stands behind moves up, unless it would come before its home.
    for (std::size_t place = hole;;) {
      place = (place + 1) & mask_;
      if (places_[place].id == 0) break;
      const std::size_t wanted = home(places_[place].id);
      if (((place - wanted) & mask_) < ((place - hole) & mask_)) continue;
      places_[hole] = places_[place];
      hole = place;
    }
    places_[hole].id = 0;
  }
  [[nodiscard]] std::size_t size() const noexcept { return count_; }

  // visit(id, item) for all, in no order.
  template <class Visit>
  void for_each(Visit&& visit) const {
    for (const Place& place : places_)
      if (place.id != 0) visit(place.id, items_[place.item]);
  }

 private:
  struct Place {
    std::uint64_t id = 0;
    std::uint32_t item = 0;
  };
  [[nodiscard]] std::size_t home(std::uint64_t id) const noexcept {
    return static_cast<std::size_t>((id * 0x9e3779b97f4a7c15u) >> shift_);
  }
  void grow() {
    std::vector<Place> old(places_.empty() ? 64 : places_.size() * 2);
    old.swap(places_);
    mask_ = places_.size() - 1;
    shift_ = 64;
    for (std::size_t size = places_.size(); size > 1; size /= 2) --shift_;
    for (const Place& one : old) {
      if (one.id == 0) continue;
      std::size_t place = home(one.id);
      while (places_[place].id != 0) place = (place + 1) & mask_;
      places_[place] = one;
    }
    free_.reserve(places_.size());
  }

  std::vector<Place> places_;
  std::vector<Item> items_;
  std::vector<std::uint32_t> free_;
  std::size_t mask_ = 0;
  unsigned shift_ = 64;
  std::size_t count_ = 0;
};

}  // namespace pleat::trace
