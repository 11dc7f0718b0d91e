// The places of two traces, told by their names: which of one is which of the other. Ids of strings
// and frames are the business of one file; lines of a source move from one run to the next.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "class_bytes.h"
#include "replay.h"

namespace pleat::trace {

// An operator and the place in a source where it was called. In a table by operator only the
// operator is known.
struct NamedPlace {
  std::string op;
  std::string function;  // empty: native, or not known
  std::string file;      // the whole path; of native code the module. Empty: not known
  std::uint64_t line = 0;
  bool native = false;

  // "train.py:12 main"; empty: not known.
  [[nodiscard]] std::string text(bool whole_path = false) const;
  friend auto operator<=>(const NamedPlace&, const NamedPlace&) = default;
};
[[nodiscard]] NamedPlace named_place(std::uint32_t op, std::uint32_t frame,
                                     const Definitions& definitions);

// What lives at a place.
struct PlaceSum {
  NamedPlace place;
  ClassBytes bytes{};
  std::uint64_t blocks = 0;

  [[nodiscard]] std::int64_t all() const noexcept { return sum_of(bytes); }
  [[nodiscard]] ByteClass largest() const noexcept { return largest_of(bytes); }
};
// Groups of one place added up.
[[nodiscard]] std::vector<PlaceSum> place_sums(const std::vector<Group>& groups,
                                               const Definitions& definitions);

// The same place in A and in B; one that only one of them has lacks the other.
struct PlacePair {
  std::optional<PlaceSum> a, b;

  [[nodiscard]] std::int64_t change() const noexcept;
};

// Each place of either is in one pair.
//   Files: by path; else by the file's name, and of several that whose path ends most alike.
//   Lines: within a function, moved by as many lines as makes most of them agree, not at all if
//   that is as good; what is left in order of lines. Operators by name, always.
[[nodiscard]] std::vector<PlacePair> match_places(std::vector<PlaceSum> a, std::vector<PlaceSum> b);

}  // namespace pleat::trace
