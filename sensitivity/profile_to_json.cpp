// Writes the text of a profile: one unit in a line, so that people can read and compare it.
#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <iterator>
#include <nlohmann/json.hpp>

#include "sensitivity/profile.h"
#include "sensitivity/profile_limits.h"

namespace pleat::sensitivity {
namespace {

// The shortest digits that are read back as the same number. What is no number is null.
void append(std::string& out, double value) {
  std::array<char, 32> digits{};
  const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), value).ptr;
  out += std::isfinite(value) ? std::string_view(digits.data(), end) : "null";
}

void append(std::string& out, std::uint64_t value) { out += std::to_string(value); }

// Too long a text is cut. What is no UTF-8 is replaced: a character for a byte, at most.
void append(std::string& out, const std::string& text) {
  out += nlohmann::json(text.substr(0, limits::kCharacters))
             .dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

template <typename T>
void field(std::string& out, const char* name, const T& value) {
  out += ", \"";
  out += name;
  out += "\": ";
  append(out, value);
}

void text_field(std::string& out, const char* name, const std::string& text) {
  if (!text.empty()) {
    field(out, name, text);
  }
}

// `each` appends an item. An empty list is left out.
template <typename T, typename Each>
void list_field(std::string& out, const char* name, const std::vector<T>& items, Each each) {
  if (items.empty()) {
    return;
  }
  out += ", \"";
  out += name;
  out += "\": [";
  for (std::size_t i = 0; i < items.size(); ++i) {
    out += i == 0 ? "" : ", ";
    each(items[i]);
  }
  out += ']';
}

void append_key(std::string& out, std::uint64_t key) {
  std::array<char, 16> digits{};
  const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), key, 16).ptr;
  const std::string_view shown(digits.data(), end);
  out += "\"0x";
  out.append(digits.size() - shown.size(), '0');
  out += shown;
  out += '"';
}

void append_unit(std::string& out, const Unit& unit) {
  out += "{\"key\": ";
  append_key(out, unit.key);
  text_field(out, "producer", unit.producer);
  text_field(out, "reader", unit.reader);
  text_field(out, "type", unit.type);
  list_field(out, "shape", unit.shape,
             [&](std::int64_t dimension) { out += std::to_string(dimension); });
  field(out, "tensors", std::uint64_t{unit.tensors});
  field(out, "bytes", unit.bytes);
  field(out, "payload_bytes", unit.payload_bytes);
  field(out, "width", std::uint64_t{unit.width});
  text_field(out, "fixed", unit.fixed);
  if (unit.floor != 1) {
    field(out, "floor", std::uint64_t{unit.floor});
  }
  text_field(out, "floor_reason", unit.floor_reason);
  out += unit.distrusted ? ", \"distrusted\": true" : "";
  list_field(out, "costs", unit.costs, [&](const WidthCost& cost) {
    out += '[' + std::to_string(cost.width) + ", " + std::to_string(cost.bytes) + ", ";
    append(out, cost.width == 0 ? 0.0 : std::min(cost.error, limits::kNumber));
    out += ']';
  });
  std::vector<Measurement> numbers;
  std::ranges::copy_if(unit.measurements, std::back_inserter(numbers),
                       [](const Measurement& m) { return !std::isnan(m.noise); });
  list_field(out, "measurements", numbers, [&](const Measurement& measurement) {
    out += '[' + std::to_string(measurement.step) + ", ";
    append(out, std::clamp(measurement.noise, 0.0, limits::kNumber));
    if (!std::isnan(measurement.update_noise)) {
      out += ", ";
      append(out, std::clamp(measurement.update_noise, 0.0, limits::kNumber));
    }
    out += ']';
  });
  list_field(out, "results", unit.results, [&](std::uint64_t key) { append_key(out, key); });
  out += '}';
}

}  // namespace

std::string to_json(const Profile& profile) {
  std::string out = "{\"pleat_profile\": " + std::to_string(limits::kVersion);
  text_field(out, "torch", profile.torch);
  field(out, "steps", profile.steps);
  field(out, "bits", profile.bits);
  text_field(out, "objective", name_of(profile.objective));
  field(out, "passes", profile.passes);
  field(out, "seconds", profile.seconds);
  if (profile.at_peak > 0) {
    field(out, "beside", profile.beside);
    field(out, "at_peak", profile.at_peak);
  }
  out += ", \"units\": [";
  for (std::size_t i = 0; i < profile.units.size(); ++i) {
    out += i == 0 ? "\n" : ",\n";
    append_unit(out, profile.units[i]);
  }
  out += "\n]}\n";
  return out;
}

}  // namespace pleat::sensitivity
