// Groups that a user makes of a program's parts by regular expressions: "attn=.*attention.*".
//
// An expression is matched against the path of the module, else against the line, else against the
// operator. The texts are a file's and may be anything: of long ones the end is matched. The engine
// is the C library's: it tries all ways at once. std::regex tries them one after the other, in
// exponential time and with a stack as deep as the text is long.
#pragma once

#include <regex.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "lines.h"
#include "parts.h"

namespace pleat::trace {

struct GroupRule {
  std::string name;
  std::shared_ptr<const regex_t> pattern;
};
// Of NAME=REGEX, an extended regular expression of POSIX without back-references, which would take
// exponential time. Nothing: `problem` says why.
[[nodiscard]] std::optional<GroupRule> parse_group(std::string_view text, std::string& problem);

class Groups final : public Parts {
 public:
  static constexpr std::size_t kMostText = 200;          // bytes of a text that is matched
  static constexpr std::size_t kMostMatches = 1u << 16;  // whatever comes then is of the last group

  // All must outlive it.
  Groups(const std::vector<GroupRule>& rules, const Definitions& definitions, Lines& lines);

  // Of the first rule that matches.
  [[nodiscard]] std::uint32_t part_of(const Origin& place) override;
  [[nodiscard]] std::uint32_t parent_of(std::uint32_t /*part*/) const override { return kNone; }
  // In the order of the rules, each name once; the last is "other": what no rule matches.
  [[nodiscard]] const std::vector<std::string>& names() const noexcept { return names_; }

 private:
  enum class Text : std::uint8_t { kModule, kLine, kOperator };
  [[nodiscard]] std::uint32_t match(std::string_view text) const;
  [[nodiscard]] std::uint32_t group_of(Text kind, std::uint32_t id);

  const std::vector<GroupRule>& rules_;
  const Definitions& definitions_;
  Lines& lines_;
  std::vector<std::string> names_;
  std::vector<std::uint32_t> group_of_rule_;
  std::unordered_map<std::uint64_t, std::uint32_t> known_;  // kind and id
};

}  // namespace pleat::trace
