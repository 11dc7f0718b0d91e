#include "reader.h"

#include <algorithm>

namespace pleat::trace {
namespace {

// Of blocks that are open at once. A sound trace has a few.
constexpr std::size_t kMostHeldBytes = 192u << 20;

}  // namespace

// ---- the file -----------------------------------------------------------------------------------

std::unique_ptr<File> File::open(const std::string& path, std::string& error) {
  std::unique_ptr<File> file(new File);
  error = file->blocks_.open(path);
  if (!error.empty()) return nullptr;
  file->problems_.damaged_blocks = file->blocks_.damaged();
  Unpacker unpacker;
  for (const BlockPlace& place : file->blocks_.blocks()) file->load(unpacker, place);
  std::stable_sort(file->record_blocks_.begin(), file->record_blocks_.end(),
                   [](const BlockPlace& a, const BlockPlace& b) {
                     return a.header.first_time < b.header.first_time;
                   });
  return file;
}

void File::load(Unpacker& unpacker, const BlockPlace& place) {
  const auto type = static_cast<BlockType>(place.header.type);
  if (type == BlockType::kRecords) {
    if (place.header.count == 0) return;
    record_blocks_.push_back(place);
    records_ += place.header.count;
    return;
  }
  if (type < BlockType::kProcess || type > BlockType::kModules) return;
  BlockBytes bytes;
  if (!blocks_.read(place, unpacker, bytes) ||
      !definitions_.add(type, place.header.count, bytes.span())) {
    ++problems_.damaged_blocks;
  }
}

std::uint64_t File::start_ns() const noexcept {
  const std::uint64_t told = process().start_ns;
  if (record_blocks_.empty()) return told;
  const std::uint64_t first = record_blocks_.front().header.first_time;
  return told == 0 || told > first ? first : told;
}

std::uint64_t File::last_ns() const noexcept {
  std::uint64_t last = start_ns();
  for (const BlockPlace& place : record_blocks_) last = std::max(last, place.header.last_time);
  return last;
}

// ---- merging ------------------------------------------------------------------------------------

bool Merge::later(const Opened& a, const Opened& b) noexcept {
  const std::uint64_t left = a->rest.front().time_ns;
  const std::uint64_t right = b->rest.front().time_ns;
  return left != right ? left > right : a->offset > b->offset;
}

void Merge::open(const BlockPlace& place) {
  done_ += place.header.count;
  if (progress_) progress_(done_, file_.records());
  BlockBytes bytes;
  auto opened = std::make_unique<Open>();
  RecordBlock& block = opened->block;
  if (!file_.blocks_.read(place, unpacker_, bytes) ||
      !block.open(std::move(bytes), place.header.count, wanted_)) {
    ++problems_.damaged_blocks;
    return;
  }
  if (block.was_unsorted()) ++problems_.unsorted_blocks;
  if (block.first_time() < place.header.first_time || block.last_time() > place.header.last_time)
    ++problems_.late_blocks;
  opened->rest = block.next();
  opened->offset = place.offset;
  opened->held_bytes = block.held_bytes();
  held_bytes_ += opened->held_bytes;
  open_.push_back(std::move(opened));
  std::push_heap(open_.begin(), open_.end(), later);
}

void Merge::open_due() {
  const std::vector<BlockPlace>& blocks = file_.record_blocks_;
  while (next_block_ < blocks.size() &&
         (open_.empty() ||
          blocks[next_block_].header.first_time <= open_.front()->rest.front().time_ns)) {
    if (!open_.empty() && held_bytes_ >= kMostHeldBytes) {
      if (std::exchange(postponed_, next_block_) != next_block_) ++problems_.postponed_blocks;
      return;
    }
    open(blocks[next_block_++]);
  }
}

std::size_t Merge::run_of(const Open& first) const noexcept {
  const std::span<const PleatTraceEvent> rest = first.rest;
  std::uint64_t limit = ~std::uint64_t{0};  // the first record that is not before it ends the run
  bool with_limit = true;                   // unless it is just as late
  const auto bound = [&](std::uint64_t time, bool may_equal) {
    if (time < limit || (time == limit && !may_equal)) {
      limit = time;
      with_limit = may_equal;
    }
  };
  // The heap's second is one of the two below its first.
  for (std::size_t child = 1; child <= 2 && child < open_.size(); ++child)
    bound(open_[child]->rest.front().time_ns, first.offset < open_[child]->offset);
  if (next_block_ < file_.record_blocks_.size() && held_bytes_ < kMostHeldBytes)
    bound(file_.record_blocks_[next_block_].header.first_time, false);
  const auto within = [&](const PleatTraceEvent& event) {
    return event.time_ns < limit || (with_limit && event.time_ns == limit);
  };
  if (within(rest.back())) return rest.size();
  std::size_t run = 1;  // the heap says that this one is first
  while (run < rest.size() && within(rest[run])) ++run;
  return run;
}

void Merge::advance(Opened current, std::size_t passed) {
  current->rest = current->rest.subspan(passed);
  if (current->rest.empty()) current->rest = current->block.next();
  if (current->rest.empty()) {
    problems_.odd_values += current->block.odd_values();
    held_bytes_ -= current->held_bytes;
    return;
  }
  open_.push_back(std::move(current));
  std::push_heap(open_.begin(), open_.end(), later);
}

std::span<const PleatTraceEvent> Merge::next() {
  if (passed_ > 0) {
    std::pop_heap(open_.begin(), open_.end(), later);
    Opened current = std::move(open_.back());
    open_.pop_back();
    advance(std::move(current), std::exchange(passed_, 0));
  }
  open_due();
  if (open_.empty()) return {};
  passed_ = run_of(*open_.front());
  return open_.front()->rest.first(passed_);
}

}  // namespace pleat::trace
