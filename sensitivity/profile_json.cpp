// The text of a profile: JSON with a line for each unit, so that people can read and compare it.
// One list of fields serves reading and writing. The reader refuses a text that is too large or too
// deep before it costs memory; sums over all units that it accepts stay within their types.
#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <type_traits>
#include <utility>

#include "sensitivity/bits.h"
#include "sensitivity/profile.h"

namespace pleat::sensitivity {
namespace {

using Json = nlohmann::json;
using Kind = Json::value_t;

constexpr std::uint64_t kVersion = 2;  // version 1 has no trails
// A text is a profile if it has this mark near its start.
constexpr std::string_view kMark = "\"pleat_profile\"";
constexpr std::size_t kMarkWithin = 4096;
constexpr std::size_t kDeepest = 15;  // lists and objects in each other
constexpr std::size_t kMostUnits = 1'000'000;
constexpr std::size_t kMostCharacters = 4096;  // of a name
constexpr std::size_t kMostDimensions = 64;
constexpr std::size_t kMostSteps = 8;  // of a trail
constexpr std::uint64_t kMostBytes = std::uint64_t{1} << 43;
constexpr std::uint64_t kMostCount = std::uint64_t{1} << 53;
constexpr double kMostNumber = 1e100;

// The fields, for reading and for writing.
template <typename Fields, typename Row>
void profile_fields(Fields& fields, Row& profile) {
  fields.value("torch", profile.torch);
  fields.whole("steps", profile.steps, 0, kMostCount);
  fields.value("bits", profile.bits);
  fields.value("objective", profile.objective);
  fields.whole("passes", profile.passes, 0, kMostCount);
  fields.value("seconds", profile.seconds);
  if (!Fields::kWrites || profile.at_peak > 0) {
    fields.whole("beside", profile.beside, 0, kMostBytes);
    fields.value("at_peak", profile.at_peak);
  }
}

template <typename Fields, typename Row>
void unit_fields(Fields& fields, Row& unit) {
  fields.value("key", unit.key);
  fields.value("producer", unit.producer);
  fields.value("reader", unit.reader);
  fields.value("type", unit.type);
  fields.value("shape", unit.shape);
  fields.whole("tensors", unit.tensors, 0, std::numeric_limits<std::uint32_t>::max());
  fields.whole("bytes", unit.bytes, 0, kMostBytes);
  fields.whole("payload_bytes", unit.payload_bytes, 0, kMostBytes);
  fields.width("width", unit.width);
  fields.value("trail", unit.trail);
  fields.value("fixed", unit.fixed);
  if (!Fields::kWrites || unit.floor != 1) fields.whole("floor", unit.floor, 1, 8);
  fields.value("floor_reason", unit.floor_reason);
  fields.value("distrusted", unit.distrusted);
  fields.value("costs", unit.costs);
  fields.value("measurements", unit.measurements);
  fields.value("results", unit.results);
}

struct Refused {
  std::string why;
};

[[noreturn]] void refuse(std::string why) { throw Refused{std::move(why)}; }

// Puts `place` before the reason if `take` refuses.
template <typename Take>
void at_place(const std::string& place, Take take) {
  try {
    take();
  } catch (const Refused& refused) {
    refuse(place + refused.why);
  }
}

void expect(const Json& value, Kind kind, const char* otherwise) {
  if (value.type() == kind) return;
  if (value.is_array()) refuse("a list is not expected here");
  if (value.is_object()) refuse("an object is not expected here");
  refuse(otherwise);
}

void expect_scalar(const Json& value) {
  if (value.is_structured()) expect(value, Kind::null, "");
}

std::uint64_t whole_of(const Json& value, std::uint64_t least, std::uint64_t most) {
  expect_scalar(value);
  const std::uint64_t number = value.is_number_unsigned() ? value.get<std::uint64_t>() : 0;
  if (!value.is_number_unsigned() || number < least || number > most)
    refuse("not a whole number from " + std::to_string(least) + " to " + std::to_string(most));
  return number;
}

std::uint8_t width_of(const Json& value) {
  expect_scalar(value);
  const std::uint64_t width = value.is_number_unsigned() ? value.get<std::uint64_t>() : 255;
  if (width != 0 && std::ranges::find(kWidths, width) == kWidths.end())
    refuse("not a width of the codec");
  return static_cast<std::uint8_t>(width);
}

void read(const Json& value, double& out) {
  expect_scalar(value);
  out = value.is_number() ? value.get<double>() : -1;
  if (!(out >= 0 && out <= kMostNumber)) refuse("not a number from 0 to 1e100");
}

void read(const Json& value, bool& out) {
  expect(value, Kind::boolean, "neither true nor false");
  out = value.get<bool>();
}

void read(const Json& value, std::string& out) {
  expect_scalar(value);
  // Characters of UTF-8: all bytes but those that continue one.
  const auto begins = [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; };
  if (value.is_string()) out = value.get<std::string>();
  if (!value.is_string() ||
      static_cast<std::size_t>(std::ranges::count_if(out, begins)) > kMostCharacters)
    refuse("not a text of at most " + std::to_string(kMostCharacters) + " characters");
}

void read(const Json& value, Objective& out) {
  out = value == name_of(Objective::kUpdate) ? Objective::kUpdate : Objective::kGradient;
  if (value != name_of(out)) refuse("neither \"gradient\" nor \"update\"");
}

// A key.
void read(const Json& value, std::uint64_t& out) {
  expect_scalar(value);
  const std::string text = value.is_string() ? value.get<std::string>() : std::string();
  const char* const end = text.data() + text.size();
  if (text.starts_with("0x")) {
    const auto [stop, error] = std::from_chars(text.data() + 2, end, out, 16);
    if (error == std::errc() && stop == end) return;
  }
  refuse("not a number of 64 bits that is written like \"0x12ab\"");
}

// A dimension.
void read(const Json& value, std::int64_t& out) {
  out = static_cast<std::int64_t>(whole_of(value, 0, kMostCount));
}

void read(const Json& row, WidthCost& cost) {
  expect(row, Kind::array, "a list or an object is expected here");
  if (row.size() != 3) refuse("a cost is a list of three");
  cost.width = width_of(row[0]);
  cost.bytes = whole_of(row[1], 0, kMostBytes);
  read(row[2], cost.error);
  if (cost.width == 0 && cost.error != 0) refuse("the exact one has an error");
}

void read(const Json& row, Measurement& measurement) {
  expect(row, Kind::array, "a list or an object is expected here");
  if (row.size() != 2 && row.size() != 3) refuse("a measurement is a list of two or three");
  measurement.step = whole_of(row[0], 0, kMostCount);
  read(row[1], measurement.noise);
  if (row.size() == 3) read(row[2], measurement.update_noise);
}

template <typename T>
void read(const Json& rows, std::vector<T>& out) {
  expect(rows, Kind::array, "not a list");
  for (const Json& row : rows) read(row, out.emplace_back());
}

void check_costs(const std::vector<WidthCost>& costs) {
  for (std::size_t i = 1; i < costs.size(); ++i) {
    const unsigned before = costs[i - 1].width;
    const unsigned width = costs[i].width;
    if (before == 0 || (width != 0 && width <= before))
      refuse("\"costs\": widths do not ascend, with the exact one last");
  }
  if (!costs.empty() && costs.back().width != 0)
    refuse("\"costs\": the last one is not the exact one, of width 0");
}

// Reads the fields that a row has; others are passed over.
class Reading {
 public:
  static constexpr bool kWrites = false;
  explicit Reading(const Json& row) : row_(row) {}

  template <typename T>
  void whole(const char* name, T& out, std::uint64_t least, std::uint64_t most) {
    field(name, [&](const Json& v) { out = static_cast<T>(whole_of(v, least, most)); });
  }
  void width(const char* name, std::uint8_t& out) {
    field(name, [&](const Json& v) { out = width_of(v); });
  }
  template <typename T>
  void value(const char* name, T& out) {
    field(name, [&](const Json& v) { read(v, out); });
  }
  template <typename Take>
  void field(const char* name, Take take) {
    const auto found = row_.find(name);
    if (found == row_.end()) return;
    at_place('"' + std::string(name) + "\": ", [&] { take(*found); });
  }

 private:
  const Json& row_;
};

void read_unit(const Json& row, Unit& unit) {
  if (!row.contains("key")) refuse("\"key\": is missing");
  Reading fields(row);
  unit_fields(fields, unit);
  if (unit.shape.size() > kMostDimensions) refuse("\"shape\": too many dimensions");
  if (unit.trail.size() > kMostSteps) refuse("\"trail\": too many steps");
  check_costs(unit.costs);
}

// Refuses more than kDeepest levels, and an object with two fields of one name, before a text is
// parsed. Names are compared as they are written. (A callback of nlohmann's parser could do so in
// quadratic time.)
void check_structure(std::string_view text) {
  std::vector<std::set<std::string_view>> open;  // names of the fields of what is open
  for (std::size_t at = 0; at < text.size(); ++at) {
    const char c = text[at];
    if (c == '{' || c == '[') {
      if (open.size() == kDeepest) refuse("it is nested too deeply");
      open.emplace_back();
    } else if ((c == '}' || c == ']') && !open.empty()) {
      open.pop_back();
    } else if (c == '"') {
      const std::size_t begin = ++at;
      while (at < text.size() && text[at] != '"') at += text[at] == '\\' ? 2 : 1;
      const std::string_view name = text.substr(begin, at - begin);
      const std::size_t after = text.find_first_not_of(" \t\r\n", at + 1);
      const bool is_name = after != std::string_view::npos && text[after] == ':';
      if (is_name && !open.empty() && !open.back().insert(name).second)
        refuse('"' + std::string(name) + "\": stands there twice");
    }
  }
}

Profile profile_of(const Json& json) {
  expect(json, Kind::object, "an object is expected");
  Profile profile;
  Reading fields(json);
  fields.field("pleat_profile", [](const Json& value) {
    const std::uint64_t version = whole_of(value, 0, kMostCount);
    if (version < 1 || version > kVersion)
      refuse("version " + std::to_string(version) + ", and this Pleat reads versions 1 to " +
             std::to_string(kVersion));
  });
  if (!json.contains("pleat_profile") || !json.contains("units"))
    refuse("a field is missing, \"pleat_profile\" or \"units\"");
  profile_fields(fields, profile);
  const Json& units = json["units"];
  at_place("\"units\": ", [&] {
    expect(units, Kind::array, "not a list");
    for (const Json& row : units) expect(row, Kind::object, "a list or an object is expected here");
  });
  if (units.size() > kMostUnits) refuse("more than " + std::to_string(kMostUnits) + " units");
  profile.units.reserve(units.size());
  std::vector<std::uint64_t> keys;
  for (const Json& row : units) {
    at_place("unit " + std::to_string(keys.size() + 1) + ", ",
             [&] { read_unit(row, profile.units.emplace_back()); });
    keys.push_back(profile.units.back().key);
  }
  std::ranges::sort(keys);  // not hashed: keys could be made to collide
  if (std::ranges::adjacent_find(keys) != keys.end()) refuse("two units have one key");
  return profile;
}

// The shortest digits that are read back as the same number. NaN and infinities are null.
void append(std::string& out, double value) {
  std::array<char, 32> digits{};
  const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), value).ptr;
  out += std::isfinite(value) ? std::string_view(digits.data(), end) : "null";
}

// Cuts a text that is too long, and replaces bytes that are no UTF-8, each by a character.
void append(std::string& out, const std::string& text) {
  out += Json(text.substr(0, kMostCharacters)).dump(-1, ' ', false, Json::error_handler_t::replace);
}

void append(std::string& out, Objective objective) { append(out, std::string(name_of(objective))); }

void append(std::string& out, std::int64_t dimension) { out += std::to_string(dimension); }

// A key.
void append(std::string& out, std::uint64_t key) {
  std::array<char, 16> digits{};
  const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), key, 16).ptr;
  const std::string_view shown(digits.data(), end);
  out.append("\"0x").append(digits.size() - shown.size(), '0').append(shown) += '"';
}

void append(std::string& out, const WidthCost& cost) {
  out += '[' + std::to_string(cost.width) + ", " + std::to_string(cost.bytes) + ", ";
  append(out, cost.width == 0 ? 0.0 : std::min(cost.error, kMostNumber));
  out += ']';
}

void append(std::string& out, const Measurement& measurement) {
  out += '[' + std::to_string(measurement.step) + ", ";
  append(out, std::clamp(measurement.noise, 0.0, kMostNumber));
  if (!std::isnan(measurement.update_noise)) {
    out += ", ";
    append(out, std::clamp(measurement.update_noise, 0.0, kMostNumber));
  }
  out += ']';
}

template <typename T>
void append(std::string& out, const std::vector<T>& items) {
  const char* separator = "[";
  for (const T& item : items) append(out += std::exchange(separator, ", "), item);
  out += ']';
}

class Writing {
 public:
  static constexpr bool kWrites = true;
  explicit Writing(std::string& out) : out_(out) {}

  template <typename T>
  void whole(const char* name, T value, std::uint64_t /*least*/, std::uint64_t /*most*/) {
    field(name) += std::to_string(value);
  }
  void width(const char* name, std::uint8_t value) { field(name) += std::to_string(value); }
  template <typename T>
  void value(const char* name, const T& value) {
    if constexpr (std::is_same_v<T, bool>) {
      if (value) field(name) += "true";
    } else {
      if constexpr (requires { value.empty(); })
        if (value.empty()) return;
      append(field(name), value);
    }
  }
  void value(const char* name, const std::vector<Measurement>& measurements) {
    std::vector<Measurement> known = measurements;
    std::erase_if(known, [](const Measurement& m) { return std::isnan(m.noise); });
    value<std::vector<Measurement>>(name, known);
  }

 private:
  std::string& field(const char* name) {
    out_ += out_.back() == '{' ? "\"" : ", \"";
    return out_.append(name).append("\": ");
  }

  std::string& out_;
};

}  // namespace

std::string to_json(const Profile& profile) {
  std::string out = "{";
  Writing fields(out);
  fields.whole("pleat_profile", kVersion, 0, kVersion);
  profile_fields(fields, profile);
  out += ", \"units\": [";
  const char* separator = "\n{";
  for (const Unit& unit : profile.units) {
    out += std::exchange(separator, ",\n{");
    unit_fields(fields, unit);
    out += '}';
  }
  return out += "\n]}\n";
}

ReadResult from_json(std::string_view text) {
  if (text.size() > kMostProfileBytes)
    return {ReadStatus::kForeign, {}, std::string(kTooLargeProfile)};
  if (text.substr(0, kMarkWithin).find(kMark) == std::string_view::npos)
    return {ReadStatus::kForeign, {}, "it is not a profile of Pleat"};
  std::string why;
  try {
    check_structure(text);
    return {ReadStatus::kOk, profile_of(Json::parse(text.begin(), text.end())), {}};
  } catch (const Refused& refused) {
    why = refused.why;
  } catch (const Json::parse_error& error) {
    why = "it is no JSON from byte " + std::to_string(error.byte) + " on";
  } catch (const Json::out_of_range&) {
    why = "a number is too large";
  }
  return {ReadStatus::kDamaged, {}, "the profile cannot be read: " + why};
}

}  // namespace pleat::sensitivity
