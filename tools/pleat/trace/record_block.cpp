#include "record_block.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "interpose/trace/wrapping.h"
#include "numbers.h"

namespace pleat::trace {
namespace {

constexpr std::uint8_t kTime = static_cast<std::uint8_t>(Column::kTime);
constexpr std::uint8_t kFirstChange = static_cast<std::uint8_t>(Column::kChange);
constexpr Columns kBasis = column_bit(Column::kTime) | column_bit(Column::kKind) |
                           column_bit(Column::kBytes);  // of predictions

// ---- values into records ------------------------------------------------------------------------

// A number that a member has no room for becomes the largest there is, and is counted.
template <class Member>
Member narrowed(std::uint64_t value, std::uint64_t& odd) noexcept {
  constexpr auto kMost = std::numeric_limits<Member>::max();
  if (value <= kMost) [[likely]]
    return static_cast<Member>(value);
  ++odd;
  return kMost;
}

std::int8_t device_of(std::uint64_t value, std::uint64_t& odd) noexcept {
  if (value <= 128) [[likely]]
    return static_cast<std::int8_t>(static_cast<int>(value) - 1);
  ++odd;
  return 127;
}

template <std::uint8_t kId>
void set(PleatTraceEvent& event, std::uint64_t value, std::uint64_t& odd) noexcept {
  constexpr auto kColumn = static_cast<Column>(kId);
  if constexpr (kColumn == Column::kTime) event.time_ns = value;
  if constexpr (kColumn == Column::kKind) event.kind = narrowed<std::uint8_t>(value, odd);
  if constexpr (kColumn == Column::kPhase) event.phase = narrowed<std::uint8_t>(value, odd);
  if constexpr (kColumn == Column::kReason) event.reason = narrowed<std::uint8_t>(value, odd);
  if constexpr (kColumn == Column::kDevice) event.device = device_of(value, odd);
  if constexpr (kColumn == Column::kThread) event.thread = narrowed<std::uint32_t>(value, odd);
  if constexpr (kColumn == Column::kOp) event.op = narrowed<std::uint32_t>(value, odd);
  if constexpr (kColumn == Column::kStack) event.stack = narrowed<std::uint32_t>(value, odd);
  if constexpr (kColumn == Column::kStream) event.stream = value;
  if constexpr (kColumn == Column::kAddress) event.address = value;
  if constexpr (kColumn == Column::kBytes) event.bytes = value;
  if constexpr (kColumn == Column::kBlock) event.block = value;
  if constexpr (kColumn == Column::kRecord) event.record = value;
  if constexpr (kColumn == Column::kNode) event.node = value;
  if constexpr (kColumn == Column::kKey) event.key = value;
  if constexpr (kId >= kFirstChange) {
    event.change[kId - kFirstChange] = static_cast<std::int64_t>(value);
  }
}

// `value` as it stands in the file under kSame and kPlain.
template <std::uint8_t kId>
std::uint64_t plain(std::uint64_t value) noexcept {
  return kId >= kFirstChange ? static_cast<std::uint64_t>(unzigzag(value)) : value;
}

template <std::uint8_t kId>
void decode_one(const std::uint8_t*& place, std::uint64_t& before, Coding coding,
                PleatTraceEvent* events, std::size_t count, std::uint64_t& odd) noexcept {
  const std::uint8_t* at = place;
  if (coding == Coding::kPlain) {
    for (std::size_t i = 0; i < count; ++i) set<kId>(events[i], plain<kId>(take_number(at)), odd);
  } else if (coding == Coding::kDelta) {
    std::uint64_t previous = before;
    for (std::size_t i = 0; i < count; ++i) {
      previous += static_cast<std::uint64_t>(unzigzag(take_number(at)));
      set<kId>(events[i], previous, odd);
    }
    before = previous;
  } else if constexpr (kId >= kFirstChange) {
    for (std::size_t i = 0; i < count; ++i) {
      const std::int64_t likely = predicted(kId - kFirstChange, events[i].kind, events[i].bytes);
      events[i].change[kId - kFirstChange] = wrapping_add(likely, unzigzag(take_number(at)));
    }
  }
  place = at;
}

using DecodeFunction = void (*)(const std::uint8_t*&, std::uint64_t&, Coding, PleatTraceEvent*,
                                std::size_t, std::uint64_t&) noexcept;
using SameFunction = void (*)(PleatTraceEvent&, std::uint64_t, std::uint64_t&) noexcept;

template <std::uint8_t kId>
void set_same(PleatTraceEvent& event, std::uint64_t value, std::uint64_t& odd) noexcept {
  set<kId>(event, plain<kId>(value), odd);
}

template <std::size_t... kIds>
constexpr std::array<DecodeFunction, sizeof...(kIds)> decode_functions(
    std::index_sequence<kIds...> /*ids*/) {
  return {decode_one<static_cast<std::uint8_t>(kIds)>...};
}
template <std::size_t... kIds>
constexpr std::array<SameFunction, sizeof...(kIds)> same_functions(
    std::index_sequence<kIds...> /*ids*/) {
  return {set_same<static_cast<std::uint8_t>(kIds)>...};
}
constexpr auto kDecode = decode_functions(std::make_index_sequence<kColumnsEnd>());
constexpr auto kSetSame = same_functions(std::make_index_sequence<kColumnsEnd>());

// Bytes that end a number, eight at a time.
std::size_t numbers_in(std::span<const std::uint8_t> bytes) noexcept {
  constexpr std::uint64_t kOnes = 0x0101010101010101u;
  std::size_t more = 0;  // bytes that more follow
  std::size_t i = 0;
  for (; i + 8 <= bytes.size(); i += 8) {
    std::uint64_t word;
    std::memcpy(&word, bytes.data() + i, sizeof word);
    more += static_cast<std::size_t>((((word >> 7) & kOnes) * kOnes) >> 56);
  }
  for (; i < bytes.size(); ++i) more += bytes[i] >> 7;
  return bytes.size() - more;
}

}  // namespace

// ---- opening ------------------------------------------------------------------------------------

bool RecordBlock::open(BlockBytes bytes, std::uint32_t count, Columns wanted) {
  bytes_ = std::move(bytes);
  left_ = count;
  batch_ = std::make_unique<PleatTraceEvent[]>(kBatch);
  for (std::size_t i = 0; i < kBatch; ++i) batch_[i].device = -1;
  if (!parse(wanted | kBasis)) return false;
  look_at_times();
  if (!in_order_) sort();
  return true;
}

bool RecordBlock::parse(Columns wanted) {
  Cursor cursor(bytes_.span());
  Columns seen = 0;
  while (cursor.left() > 0) {
    const std::uint8_t id = cursor.byte();
    const auto coding = static_cast<Coding>(cursor.byte());
    const std::span<const std::uint8_t> bytes = cursor.bytes(cursor.number());
    if (cursor.failed()) return false;
    if (id == 0 || id >= kColumnsEnd) continue;
    if (coding > Coding::kOverRow || (seen >> id & 1u) != 0) return false;
    seen |= 1u << id;
    if (!add_column(id, coding, bytes)) return false;
    // A column nobody wants is verified all the same, so that all passes see the same blocks.
    if ((wanted >> id & 1u) == 0 && coding != Coding::kSame) --column_count_;
  }
  // Predictions need kind and bytes.
  std::stable_partition(columns_.begin(),
                        columns_.begin() + static_cast<std::ptrdiff_t>(column_count_),
                        [](const Reading& column) { return column.id < kFirstChange; });
  return true;
}

bool RecordBlock::add_column(std::uint8_t id, Coding coding, std::span<const std::uint8_t> bytes) {
  if (coding == Coding::kSame) {
    Cursor cursor(bytes);
    const std::uint64_t value = cursor.number();
    if (cursor.failed() || cursor.left() != 0) return false;
    for (std::size_t i = 0; i < kBatch; ++i) kSetSame[id](batch_[i], value, odd_);
    return true;
  }
  if (coding == Coding::kOverRow && id < kFirstChange) return false;
  // Enough ends of numbers, the last byte one of them: no number of the column leaves it.
  if (numbers_in(bytes) != left_ || (!bytes.empty() && bytes.back() >= 0x80)) return false;
  columns_[column_count_++] = {bytes.data(), 0, id, coding};
  return true;
}

void RecordBlock::look_at_times() noexcept {
  const Reading* const times =
      std::find_if(columns_.data(), columns_.data() + column_count_,
                   [](const Reading& column) { return column.id == kTime; });
  if (times == columns_.data() + column_count_) {
    first_time_ = last_time_ = batch_[0].time_ns;
    return;
  }
  const std::uint8_t* at = times->at;
  std::uint64_t time = 0;
  std::uint64_t before = 0;
  std::uint64_t first = ~std::uint64_t{0};
  std::uint64_t last = 0;
  bool in_order = true;
  const bool is_delta = times->coding == Coding::kDelta;
  for (std::uint32_t i = 0; i < left_; ++i) {
    const std::uint64_t number = take_number(at);
    time = is_delta ? time + static_cast<std::uint64_t>(unzigzag(number)) : number;
    in_order = in_order && time >= before;
    before = time;
    first = std::min(first, time);
    last = std::max(last, time);
  }
  first_time_ = first;
  last_time_ = last;
  in_order_ = in_order;
}

void RecordBlock::sort() {
  std::vector<PleatTraceEvent> all;
  all.reserve(left_);
  while (const std::size_t count = decode()) all.insert(all.end(), &batch_[0], &batch_[count]);
  std::stable_sort(all.begin(), all.end(), [](const PleatTraceEvent& a, const PleatTraceEvent& b) {
    return a.time_ns < b.time_ns;
  });
  sorted_ = std::move(all);
  left_ = static_cast<std::uint32_t>(sorted_.size());
}

// ---- reading ------------------------------------------------------------------------------------

std::size_t RecordBlock::decode() noexcept {
  const std::size_t count = std::min<std::size_t>(left_, kBatch);
  for (std::size_t i = 0; i < column_count_; ++i) {
    Reading& column = columns_[i];
    kDecode[column.id](column.at, column.previous, column.coding, batch_.get(), count, odd_);
  }
  left_ -= static_cast<std::uint32_t>(count);
  return count;
}

std::span<const PleatTraceEvent> RecordBlock::next() {
  if (sorted_.empty()) return {batch_.get(), decode()};
  const std::size_t count = left_;
  left_ = 0;
  return {sorted_.data(), count};
}

}  // namespace pleat::trace
