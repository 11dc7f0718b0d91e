#include "groups.h"

#include <algorithm>
#include <array>
#include <utility>

namespace pleat::trace {
namespace {

constexpr std::string_view kOther = "other";

constexpr std::size_t kMostPattern = 1000;  // bytes

bool refers_back(std::string_view pattern) {
  for (std::size_t i = 0; i + 1 < pattern.size(); ++i) {
    if (pattern[i] != '\\') continue;
    ++i;
    if (pattern[i] >= '1' && pattern[i] <= '9') return true;
  }
  return false;
}

// Null: `problem` says why.
std::shared_ptr<const regex_t> compile(const std::string& pattern, std::string& problem) {
  auto compiled = std::make_unique<regex_t>();
  const int error = ::regcomp(compiled.get(), pattern.c_str(), REG_EXTENDED | REG_NOSUB);
  if (error == 0)
    return {compiled.release(), [](regex_t* one) {
              ::regfree(one);
              delete one;
            }};
  std::array<char, 128> words{};
  ::regerror(error, compiled.get(), words.data(), words.size());
  problem = words.data();
  return nullptr;
}

}  // namespace

std::optional<GroupRule> parse_group(std::string_view text, std::string& problem) {
  const std::size_t equals = text.find('=');
  if (equals == std::string_view::npos || equals == 0 || equals + 1 == text.size()) {
    problem = "is not NAME=REGEX";
    return std::nullopt;
  }
  const std::string pattern(text.substr(equals + 1));
  if (pattern.size() > kMostPattern || refers_back(pattern)) {
    problem = pattern.size() > kMostPattern ? "is too long" : "refers back, which is not allowed";
    return std::nullopt;
  }
  std::shared_ptr<const regex_t> compiled = compile(pattern, problem);
  if (compiled == nullptr) return std::nullopt;
  return GroupRule{std::string(text.substr(0, equals)), std::move(compiled)};
}

Groups::Groups(const std::vector<GroupRule>& rules, const Definitions& definitions, Lines& lines)
    : rules_(rules), definitions_(definitions), lines_(lines) {
  for (const GroupRule& rule : rules)
    if (rule.name != kOther && std::find(names_.begin(), names_.end(), rule.name) == names_.end())
      names_.push_back(rule.name);
  names_.emplace_back(kOther);
  for (const GroupRule& rule : rules)
    group_of_rule_.push_back(static_cast<std::uint32_t>(
        std::find(names_.begin(), names_.end(), rule.name) - names_.begin()));
}

std::uint32_t Groups::match(std::string_view text) const {
  if (text.size() > kMostText) text.remove_prefix(text.size() - kMostText);
  const std::string terminated(text);
  for (std::size_t i = 0; i < rules_.size(); ++i)
    if (::regexec(rules_[i].pattern.get(), terminated.c_str(), 0, nullptr, 0) == 0)
      return group_of_rule_[i];
  return static_cast<std::uint32_t>(names_.size() - 1);
}

std::uint32_t Groups::group_of(Text kind, std::uint32_t id) {
  const std::uint64_t key = std::uint64_t{static_cast<std::uint8_t>(kind)} << 32 | id;
  if (const auto known = known_.find(key); known != known_.end()) return known->second;
  if (known_.size() >= kMostMatches) return static_cast<std::uint32_t>(names_.size() - 1);
  return known_[key] =
             kind == Text::kLine ? match(lines_.long_text(id)) : match(definitions_.string(id));
}

std::uint32_t Groups::part_of(const Origin& place) {
  if (place.module != 0) return group_of(Text::kModule, place.module);
  const std::uint32_t frame = lines_.frame_of(place.stack);
  if (frame != 0) return group_of(Text::kLine, frame);
  if (place.op != 0) return group_of(Text::kOperator, place.op);
  return static_cast<std::uint32_t>(names_.size() - 1);
}

}  // namespace pleat::trace
