// MappedTable finds items by an id that is not 0. Its memory comes from mmap and grows with the
// items that live. Items keep their place, which is a number, until they are erased. One thread at
// a time.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>

#include "interpose/trace/mapped.h"

namespace pleat::trace {

template <class Item, std::size_t kMostItems = std::size_t{1} << 21>
class MappedTable {
  static_assert(std::is_trivially_copyable_v<Item>);

 public:
  static constexpr std::size_t kMost = kMostItems;
  static constexpr std::uint32_t kNoPlace = 0xffffffff;

  [[nodiscard]] Item* find(std::uint64_t id) noexcept {
    return const_cast<Item*>(static_cast<const MappedTable&>(*this).find(id));
  }
  [[nodiscard]] const Item* find(std::uint64_t id) const noexcept {
    const std::uint32_t place = place_of(id);
    return place == kNoPlace ? nullptr : &slots_[place].item;
  }
  // kNoPlace: there is none such.
  [[nodiscard]] std::uint32_t place_of(std::uint64_t id) const noexcept {
    if (count_ == 0 || id == 0) return kNoPlace;
    for (std::size_t at = home(id);; at = (at + 1) & mask_) {
      if (entries_[at].id == id) return entries_[at].place;
      if (entries_[at].id == 0) return kNoPlace;
    }
  }
  [[nodiscard]] Item& at(std::uint32_t place) noexcept { return slots_[place].item; }

  // A new item for an id that has none; null: no memory, or there are too many. Pointers to others
  // are void.
  [[nodiscard]] Item* insert(std::uint64_t id) noexcept {
    if (id == 0 || count_ >= kMost || !have_room()) return nullptr;
    std::size_t at = home(id);
    while (entries_[at].id != 0) at = (at + 1) & mask_;
    std::uint32_t place = free_;
    if (place != 0) {
      free_ = slots_[--place].next_free;
    } else {
      place = static_cast<std::uint32_t>(used_++);
    }
    entries_[at] = {id, place};
    ++count_;
    slots_[place].item = Item{};
    return &slots_[place].item;
  }
  // Null as insert() says; pointers to others are void if it is new.
  [[nodiscard]] Item* find_or_insert(std::uint64_t id) noexcept {
    Item* const known = find(id);
    return known != nullptr ? known : insert(id);
  }
  void erase(std::uint64_t id) noexcept {
    if (count_ == 0 || id == 0) return;
    std::size_t hole = home(id);
    while (entries_[hole].id != id) {
      if (entries_[hole].id == 0) return;
      hole = (hole + 1) & mask_;
    }
    const std::uint32_t place = entries_[hole].place;
    slots_[place].next_free = free_;
    free_ = place + 1;
    --count_;
    // What stands behind moves up, unless it would come before its home.
    for (std::size_t at = hole;;) {
      at = (at + 1) & mask_;
      if (entries_[at].id == 0) break;
      if (((at - home(entries_[at].id)) & mask_) < ((at - hole) & mask_)) continue;
      entries_[hole] = entries_[at];
      hole = at;
    }
    entries_[hole].id = 0;
  }
  [[nodiscard]] std::size_t size() const noexcept { return count_; }

  // visit(id, item) for all, in no order.
  template <class Visit>
  void for_each(Visit&& visit) {
    for (std::size_t i = 0; count_ != 0 && i <= mask_; ++i)
      if (entries_[i].id != 0) visit(entries_[i].id, slots_[entries_[i].place].item);
  }
  template <class Visit>
  void for_each(Visit&& visit) const {
    for (std::size_t i = 0; count_ != 0 && i <= mask_; ++i)
      if (entries_[i].id != 0) visit(entries_[i].id, std::as_const(slots_[entries_[i].place].item));
  }

  // Empties the table. What it took beyond a small multiple of what was in it is given back.
  void clear() noexcept {
    if (entries_ == nullptr) return;
    if (mask_ + 1 > 16 * count_ + kFirst) return release();
    std::memset(entries_, 0, (mask_ + 1) * sizeof(Entry));
    count_ = used_ = 0;
    free_ = 0;
  }
  // Empties the table and gives its memory back. A table that was not released keeps its memory.
  void release() noexcept {
    if (entries_ != nullptr) ::munmap(entries_, (mask_ + 1) * sizeof(Entry));
    if (slots_ != nullptr) ::munmap(slots_, room_ * sizeof(Slot));
    *this = MappedTable();
  }

 private:
  struct Entry {
    std::uint64_t id;  // 0: nothing is here
    std::uint32_t place;
  };
  struct Slot {
    Item item;
    std::uint32_t next_free;  // plus 1
  };
  static constexpr std::size_t kFirst = 256;

  [[nodiscard]] std::size_t home(std::uint64_t id) const noexcept {
    return static_cast<std::size_t>((id * 0x9e3779b97f4a7c15u) >> shift_);
  }
  bool have_room() noexcept {
    if (used_ == room_ && free_ == 0) {
      const std::size_t wanted = room_ == 0 ? kFirst / 2 : 2 * room_;
      void* const moved = slots_ == nullptr ? map_zeros(wanted * sizeof(Slot))
                                            : ::mremap(slots_, room_ * sizeof(Slot),
                                                       wanted * sizeof(Slot), MREMAP_MAYMOVE);
      if (moved == nullptr || moved == MAP_FAILED) return false;
      slots_ = static_cast<Slot*>(moved);
      room_ = wanted;
    }
    return (entries_ != nullptr && 2 * (count_ + 1) <= mask_ + 1) || grow();
  }
  bool grow() noexcept {
    const std::size_t before = entries_ != nullptr ? mask_ + 1 : 0;
    const std::size_t wanted = before != 0 ? 2 * before : kFirst;
    auto* const larger = static_cast<Entry*>(map_zeros(wanted * sizeof(Entry)));
    if (larger == nullptr) return false;
    Entry* const old = entries_;
    entries_ = larger;
    mask_ = wanted - 1;
    shift_ = 64;
    for (std::size_t size = wanted; size > 1; size /= 2) --shift_;
    for (std::size_t i = 0; i < before; ++i) {
      if (old[i].id == 0) continue;
      std::size_t at = home(old[i].id);
      while (entries_[at].id != 0) at = (at + 1) & mask_;
      entries_[at] = old[i];
    }
    if (old != nullptr) ::munmap(old, before * sizeof(Entry));
    return true;
  }

  Entry* entries_ = nullptr;
  Slot* slots_ = nullptr;
  std::size_t mask_ = 0;
  unsigned shift_ = 0;  // of no meaning before there is an entry
  std::size_t count_ = 0;
  std::size_t used_ = 0, room_ = 0;  // of slots
  std::uint32_t free_ = 0;           // the first free place below used_, plus 1
};

}  // namespace pleat::trace
