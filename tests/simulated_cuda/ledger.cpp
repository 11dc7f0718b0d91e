#include "tests/simulated_cuda/ledger.h"

#include <algorithm>
#include <cstdio>

namespace pleat::simulated {
namespace {

constexpr std::size_t kMostReports = 100;

std::uintptr_t number(const void* address) { return reinterpret_cast<std::uintptr_t>(address); }

std::string describe(bool writes, const std::string& what, std::uint32_t stream) {
  return std::string(writes ? "write by " : "read by ") + what + " on stream " +
         std::to_string(stream);
}

}  // namespace

void Ledger::object(std::string report) {
  ++objections_;
  if (reports_.size() >= kMostReports || !seen_.insert(report).second) return;
  std::fprintf(stderr, "SIMULATED CUDA oracle: %s\n", report.c_str());
  reports_.push_back(std::move(report));
}

std::uint32_t Ledger::name_of(const std::string& what) {
  const auto [at, is_new] = numbers_.try_emplace(what, static_cast<std::uint32_t>(names_.size()));
  if (is_new) names_.push_back(what);
  return at->second;
}

Ledger::Pieces::iterator Ledger::cut(std::uintptr_t at) {
  auto next = pieces_.lower_bound(at);
  if (next == pieces_.begin() || (next != pieces_.end() && next->first == at)) return next;
  const auto before = std::prev(next);
  if (before->second.end <= at) return next;
  Piece rest = before->second;
  before->second.end = at;
  return pieces_.emplace_hint(next, at, std::move(rest));
}

void Ledger::compare(const Past& before, bool before_writes, const VectorClock& known, Epoch epoch,
                     const std::string& what, bool writes) {
  if (known.has(before.epoch) ||
      (before.epoch.stream == epoch.stream && before.epoch.count == epoch.count))
    return;
  // Without the address, which differs between runs: each pair of operations is reported once.
  object(describe(writes, what, epoch.stream) + " does not happen after " +
         describe(before_writes, names_[before.name], before.epoch.stream));
}

void Ledger::read(std::uintptr_t begin, std::uintptr_t end, const Past& past) {
  auto at = cut(begin);
  cut(end);
  for (std::uintptr_t from = begin; from < end;) {
    if (at == pieces_.end() || at->first >= end || at->first > from) {  // no piece up to there
      const std::uintptr_t to = at == pieces_.end() ? end : std::min(end, at->first);
      at = pieces_.emplace_hint(at, from, Piece{to, {}, {}});
    }
    auto& reads = at->second.reads;
    const auto mine = std::find_if(reads.begin(), reads.end(), [&](const Past& other) {
      return other.epoch.stream == past.epoch.stream;
    });
    if (mine == reads.end())
      reads.push_back(past);
    else
      *mine = past;
    from = at->second.end;
    ++at;
  }
}

void Ledger::note(Epoch epoch, const VectorClock& known, const std::string& what,
                  std::span<const Access> accesses, bool in_a_graph) {
  const Past past{epoch, name_of(what)};
  for (const Access& access : accesses) {
    if (access.bytes == 0) continue;
    const std::uintptr_t begin = number(access.address), end = begin + access.bytes;
    if (!in_a_graph) check_life(begin, end, what);
    auto at = pieces_.upper_bound(begin);
    if (at != pieces_.begin() && std::prev(at)->second.end > begin) --at;
    for (; at != pieces_.end() && at->first < end; ++at) {
      compare(at->second.write, true, known, epoch, what, access.writes);
      if (access.writes)
        for (const Past& other : at->second.reads) compare(other, false, known, epoch, what, true);
    }
    if (access.writes) {
      const auto first = cut(begin);
      pieces_.erase(first, cut(end));
      pieces_.emplace(begin, Piece{end, past, {}});
    } else {
      read(begin, end, past);
    }
  }
}

void Ledger::vanish(const VectorClock& known, const std::string& what, const void* address,
                    std::size_t bytes) {
  const std::uintptr_t begin = number(address), end = begin + bytes;
  const auto first = cut(begin);
  const auto last = cut(end);
  for (auto at = first; at != last; ++at) {
    const auto object_to = [&](const Past& other, bool writes) {
      if (!known.has(other.epoch))
        object(what + " does not happen after " +
               describe(writes, names_[other.name], other.epoch.stream));
    };
    object_to(at->second.write, true);
    for (const Past& other : at->second.reads) object_to(other, false);
  }
  pieces_.erase(first, last);
  clear_blocks(begin, end);
}

void Ledger::forget(const void* address, std::size_t bytes) {
  if (bytes == 0) return;
  const std::uintptr_t begin = number(address);
  const auto first = cut(begin);
  pieces_.erase(first, cut(begin + bytes));
}

void Ledger::clear_blocks(std::uintptr_t begin, std::uintptr_t end) {
  auto at = blocks_.upper_bound(begin);
  if (at != blocks_.begin() && std::prev(at)->second.end > begin) --at;
  while (at != blocks_.end() && at->first < end) {
    const auto [from, block] = *at;
    at = blocks_.erase(at);
    if (from < begin) blocks_[from] = {begin, block.live, block.checked};
    if (block.end > end) at = blocks_.emplace(end, block).first;
  }
}

void Ledger::hand_out(const void* address, std::size_t bytes, bool checked) {
  const std::uintptr_t begin = number(address), end = begin + bytes;
  auto at = blocks_.upper_bound(begin);
  if (at != blocks_.begin() && std::prev(at)->second.end > begin) --at;
  for (; at != blocks_.end() && at->first < end; ++at)
    if (at->second.live && at->second.checked && checked)
      object("a block of " + std::to_string(bytes) +
             " bytes is handed out while its memory is in use");
  clear_blocks(begin, end);
  blocks_[begin] = {end, true, checked};
}

void Ledger::take_back(const void* address, bool checked) {
  const auto at = blocks_.find(number(address));
  if (at == blocks_.end() || !at->second.live) {
    if (checked) object("a block is taken back that is not handed out");
    return;
  }
  at->second.live = false;
}

void Ledger::check_life(std::uintptr_t begin, std::uintptr_t end, const std::string& what) {
  auto at = blocks_.upper_bound(begin);
  if (at != blocks_.begin() && std::prev(at)->second.end > begin) --at;
  for (; at != blocks_.end() && at->first < end; ++at)
    if (!at->second.live && at->second.checked) {
      object(what + " uses a block that was taken back");
      return;
    }
}

}  // namespace pleat::simulated
