#include "match.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <string_view>
#include <tuple>

#include "interpose/trace/wrapping.h"

namespace pleat::trace {

// ---- names --------------------------------------------------------------------------------------

namespace {

std::string_view last_part(std::string_view path) { return path.substr(path.rfind('/') + 1); }

}  // namespace

std::string NamedPlace::text(bool whole_path) const {
  if (file.empty()) return {};
  const std::string_view path = whole_path ? std::string_view(file) : last_part(file);
  if (native) return fmt::format("{}+{:#x}", path, line);
  return fmt::format("{}:{} {}", path, line, function);
}

NamedPlace named_place(std::uint32_t op, std::uint32_t frame, const Definitions& definitions) {
  NamedPlace place;
  place.op = definitions.string(op);
  const Frame* const found = definitions.frame(frame);
  if (found == nullptr) return place;
  place.line = found->where;
  place.native = found->kind != FrameKind::kPython;
  if (place.native) {
    const Module* const module = definitions.module(found->name);
    place.file = module != nullptr ? definitions.text(module->path) : "?";
  } else {
    place.function = definitions.string(found->name);
    place.file = definitions.string(found->file);
  }
  return place;
}

// ---- sums ---------------------------------------------------------------------------------------

std::int64_t PlacePair::change() const noexcept {
  return wrapping_subtract(b ? b->all() : 0, a ? a->all() : 0);
}

std::vector<PlaceSum> place_sums(const std::vector<Group>& groups, const Definitions& definitions) {
  std::map<NamedPlace, PlaceSum> sums;
  for (const Group& group : groups) {
    NamedPlace place = named_place(group.op, group.frame, definitions);
    PlaceSum& sum = sums.try_emplace(place).first->second;
    std::int64_t& bytes = sum.bytes[static_cast<std::size_t>(group.of)];
    bytes = wrapping_add(bytes, group.bytes);
    sum.blocks += group.count;
    sum.place = std::move(place);
  }
  std::vector<PlaceSum> list;
  list.reserve(sums.size());
  for (auto& [place, sum] : sums) list.push_back(std::move(sum));
  return list;
}

// ---- files --------------------------------------------------------------------------------------

namespace {

// So many are held together at most, of files and of the places of a function. What is beyond that
// is taken as it comes.
constexpr std::size_t kMostPairs = 1u << 20;

using Files = std::map<std::string, std::string, std::less<>>;  // of B: A's

// How many characters at their ends are the same.
std::size_t common_end(std::string_view a, std::string_view b) {
  const auto differs = std::mismatch(a.rbegin(), a.rend(), b.rbegin(), b.rend());
  return static_cast<std::size_t>(differs.first - a.rbegin());
}

std::set<std::string> files_of(const std::vector<PlaceSum>& sums) {
  std::set<std::string> files;
  for (const PlaceSum& sum : sums) files.insert(sum.place.file);
  return files;
}

// A file that both have is itself. Each of the others is one of A's at most, the most alike first.
Files same_files(const std::vector<PlaceSum>& a, const std::vector<PlaceSum>& b) {
  std::set<std::string> of_a = files_of(a);
  Files same;
  std::multimap<std::string_view, std::string_view> left;  // of A, by name
  const std::set<std::string> of_b = files_of(b);
  for (const std::string& file : of_a)
    if (!of_b.contains(file)) left.emplace(last_part(file), file);
  using Likeness = std::tuple<std::size_t, std::string_view, std::string_view>;
  std::vector<Likeness> candidates;
  for (const std::string& file : of_b) {
    if (of_a.contains(file)) continue;
    const auto [first, last] = left.equal_range(last_part(file));
    for (auto it = first; it != last && candidates.size() < kMostPairs; ++it)
      candidates.emplace_back(common_end(it->second, file), it->second, file);
  }
  std::stable_sort(candidates.begin(), candidates.end(), [](const Likeness& x, const Likeness& y) {
    return std::get<0>(x) > std::get<0>(y);
  });
  std::set<std::string_view> taken;
  for (const auto& [likeness, file_a, file_b] : candidates)
    if (!same.contains(file_b) && taken.insert(file_a).second)
      same.emplace(std::string(file_b), std::string(file_a));
  return same;
}

// ---- lines --------------------------------------------------------------------------------------

using Where = std::pair<std::string, std::uint64_t>;  // operator, line
using Places = std::map<Where, PlaceSum*>;

// The places of one function, or what no function is known of, in both.
struct Function {
  Places a, b;
};

// By how many lines most of A's have moved in B. Modulo 2^64, so that lines may go up.
std::uint64_t find_shift(const Function& function) {
  if (function.a.size() * function.b.size() > kMostPairs) return 0;
  std::map<std::uint64_t, std::size_t> agree;
  for (const auto& [a, sum_a] : function.a)
    for (auto b = function.b.lower_bound({a.first, 0});
         b != function.b.end() && b->first.first == a.first; ++b)
      ++agree[b->first.second - a.second];
  const auto distance = [](std::uint64_t shift) {
    return std::min(shift, std::uint64_t{0} - shift);
  };
  std::pair<std::uint64_t, std::size_t> best{0, 0};
  for (const auto& [shift, count] : agree)
    if (count > best.second || (count == best.second && distance(shift) < distance(best.first)))
      best = {shift, count};
  return best.first;
}

void pair_up(Places& a, Places::iterator in_a, Places& b, Places::iterator in_b,
             std::vector<PlacePair>& pairs) {
  pairs.push_back({std::move(*in_a->second), std::move(*in_b->second)});
  a.erase(in_a);
  b.erase(in_b);
}

void match_function(Function& function, std::vector<PlacePair>& pairs) {
  auto& [a, b] = function;
  const std::uint64_t shift = find_shift(function);
  for (auto it = a.begin(); it != a.end();) {
    const auto here = it++;
    const auto there = b.find({here->first.first, here->first.second + shift});
    if (there != b.end()) pair_up(a, here, b, there, pairs);
  }
  for (auto it = a.begin(); it != a.end();) {
    const auto here = it++;
    const auto there = b.lower_bound({here->first.first, 0});
    if (there != b.end() && there->first.first == here->first.first)
      pair_up(a, here, b, there, pairs);
  }
  for (const auto& [where, sum] : a) pairs.push_back({std::move(*sum), std::nullopt});
  for (const auto& [where, sum] : b) pairs.push_back({std::nullopt, std::move(*sum)});
}

}  // namespace

std::vector<PlacePair> match_places(std::vector<PlaceSum> a, std::vector<PlaceSum> b) {
  const Files files = same_files(a, b);
  std::map<std::tuple<std::string, std::string, bool>, Function> functions;
  for (PlaceSum& sum : a) {
    const NamedPlace& place = sum.place;
    functions[{place.file, place.function, place.native}].a[{place.op, place.line}] = &sum;
  }
  for (PlaceSum& sum : b) {
    const NamedPlace& place = sum.place;
    const auto known = files.find(place.file);
    const std::string& file = known != files.end() ? known->second : place.file;
    functions[{file, place.function, place.native}].b[{place.op, place.line}] = &sum;
  }
  std::vector<PlacePair> pairs;
  for (auto& [name, function] : functions) match_function(function, pairs);
  return pairs;
}

}  // namespace pleat::trace
