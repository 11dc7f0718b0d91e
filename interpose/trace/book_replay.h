// What lives, told once more: the events with which another part of a trace's file begins, so that
// a reader of that part alone knows blocks, records, classes and lines, and has the true sums.
#pragma once

#include <cstdint>

#include "interpose/trace/live_book.h"
#include "interpose/trace/mapped.h"

namespace pleat::trace {

class BookReplay {
 public:
  using Tell = void (*)(void* context, const PleatTraceEvent& event);

  // Tells all at one time. For each device the changes add up to its sums: what no block or record
  // explains is in its PRESENT mark, which comes first. Blocks of before the trace stay in that,
  // and are mentioned by what is known of them. False: no memory, and some may be missing.
  [[nodiscard]] bool tell(LiveBook& book, std::uint64_t time_ns, Tell to, void* context) noexcept;

 private:
  enum class Ages : std::uint8_t { kPast, kYoung };

  void present(LiveBook& book) noexcept;
  void all(LiveBook& book) noexcept;
  void threads(LiveBook& book) noexcept;
  void blocks(int index, BookDevice& device, Ages ages) noexcept;
  void labels(int index, BookDevice& device) noexcept;
  void payloads(int index, BookDevice& device) noexcept;
  void slot(int index, std::uint64_t address, const LifeSlot& slot) noexcept;
  void records(int index, BookDevice& device) noexcept;
  void record(int index, BookDevice& device, std::uint64_t id, const BookRecord& record) noexcept;
  void decisions(int index, std::uint64_t id, const BookRecord& record) noexcept;
  void restored(int index, BookDevice& device) noexcept;
  void allocate(int index, std::uint64_t id, const BookBlock& block) noexcept;
  void in_module(std::uint32_t thread, std::uint32_t module, std::uint32_t depth) noexcept;

  [[nodiscard]] PleatTraceEvent event(PleatTraceKind kind, int index) const noexcept;
  void say(const PleatTraceEvent& event) noexcept;
  // visit(id, item) for all items of a table, ids ascending.
  template <class Item, class Visit>
  void in_order(MappedTable<Item>& table, Visit&& visit) noexcept;

  std::uint64_t time_ns_ = 0;
  Tell tell_ = nullptr;
  void* context_ = nullptr;
  Changes told_{};  // of one device
  static constexpr int kAll = -2;
  int told_device_ = kAll;  // whose sums are added up, without a word; kAll: all is told
  ByteBuffer ids_;          // of what is told in order
  MappedTable<std::uint32_t> modules_;  // by thread: where it was said to be
  bool complete_ = true;
};

}  // namespace pleat::trace
