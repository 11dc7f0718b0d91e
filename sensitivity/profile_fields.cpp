#include "sensitivity/profile_fields.h"

#include <algorithm>
#include <charconv>
#include <limits>

#include "sensitivity/bits.h"
#include "sensitivity/profile_limits.h"

namespace pleat::sensitivity {
namespace {

template <typename T>
[[nodiscard]] std::string read_whole(const Scalar& value, std::uint64_t least, std::uint64_t most,
                                     T& out) {
  const auto* number = std::get_if<std::uint64_t>(&value);
  if (number == nullptr || *number < least || *number > most) {
    return "not a whole number from " + std::to_string(least) + " to " + std::to_string(most);
  }
  out = static_cast<T>(*number);
  return {};
}

// Characters of UTF-8: all bytes but those that go on with one.
[[nodiscard]] std::size_t characters(const std::string& text) {
  return static_cast<std::size_t>(std::ranges::count_if(
      text, [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
}

[[nodiscard]] std::string read_text(const Scalar& value, std::string& out) {
  const auto* text = std::get_if<std::string>(&value);
  if (text == nullptr || characters(*text) > limits::kCharacters) {
    return "not a text of at most " + std::to_string(limits::kCharacters) + " characters";
  }
  out = *text;
  return {};
}

[[nodiscard]] std::string read_truth(const Scalar& value, bool& out) {
  const auto* truth = std::get_if<bool>(&value);
  if (truth == nullptr) {
    return "neither true nor false";
  }
  out = *truth;
  return {};
}

[[nodiscard]] std::string read_version(const Scalar& value, Profile& /*profile*/) {
  std::uint64_t version = 0;
  std::string wrong = read_whole(value, 0, limits::kCount, version);
  if (wrong.empty() && version != limits::kVersion) {
    wrong = "version " + std::to_string(version) + ", and this Pleat reads version " +
            std::to_string(limits::kVersion);
  }
  return wrong;
}

[[nodiscard]] std::string read_objective(const Scalar& value, Objective& out) {
  const auto* name = std::get_if<std::string>(&value);
  for (const Objective objective : {Objective::kGradient, Objective::kUpdate}) {
    if (name != nullptr && *name == name_of(objective)) {
      out = objective;
      return {};
    }
  }
  return "neither \"gradient\" nor \"update\"";
}

constexpr auto kNone = List::kNone;

constexpr Field<Profile> kProfileFields[] = {
    {"pleat_profile", kNone, read_version},
    {"torch", kNone, [](const Scalar& v, Profile& p) { return read_text(v, p.torch); }},
    {"steps", kNone, [](const Scalar& v, Profile& p) { return read_step(v, p.steps); }},
    {"bits", kNone, [](const Scalar& v, Profile& p) { return read_number(v, p.bits); }},
    {"objective", kNone,
     [](const Scalar& v, Profile& p) { return read_objective(v, p.objective); }},
    {"passes", kNone, [](const Scalar& v, Profile& p) { return read_step(v, p.passes); }},
    {"seconds", kNone, [](const Scalar& v, Profile& p) { return read_number(v, p.seconds); }},
    {"beside", kNone, [](const Scalar& v, Profile& p) { return read_bytes(v, p.beside); }},
    {"at_peak", kNone, [](const Scalar& v, Profile& p) { return read_number(v, p.at_peak); }},
    {"units", List::kUnits},
};

constexpr auto kMostTensors = std::numeric_limits<std::uint32_t>::max();
constexpr Field<Unit> kUnitFields[] = {
    {"key", kNone, [](const Scalar& v, Unit& u) { return read_key(v, u.key); }},
    {"producer", kNone, [](const Scalar& v, Unit& u) { return read_text(v, u.producer); }},
    {"reader", kNone, [](const Scalar& v, Unit& u) { return read_text(v, u.reader); }},
    {"type", kNone, [](const Scalar& v, Unit& u) { return read_text(v, u.type); }},
    {"shape", List::kShape},
    {"tensors", kNone,
     [](const Scalar& v, Unit& u) { return read_whole(v, 0, kMostTensors, u.tensors); }},
    {"bytes", kNone, [](const Scalar& v, Unit& u) { return read_bytes(v, u.bytes); }},
    {"payload_bytes", kNone,
     [](const Scalar& v, Unit& u) { return read_bytes(v, u.payload_bytes); }},
    {"width", kNone, [](const Scalar& v, Unit& u) { return read_width(v, u.width); }},
    {"fixed", kNone, [](const Scalar& v, Unit& u) { return read_text(v, u.fixed); }},
    {"floor", kNone,
     [](const Scalar& v, Unit& u) { return read_whole(v, 1, limits::kFloor, u.floor); }},
    {"floor_reason", kNone, [](const Scalar& v, Unit& u) { return read_text(v, u.floor_reason); }},
    {"distrusted", kNone, [](const Scalar& v, Unit& u) { return read_truth(v, u.distrusted); }},
    {"costs", List::kCosts},
    {"measurements", List::kMeasurements},
    {"results", List::kResults},
};

}  // namespace

std::string read_key(const Scalar& value, std::uint64_t& out) {
  const auto* text = std::get_if<std::string>(&value);
  if (text != nullptr && text->starts_with("0x")) {
    const char* const end = text->data() + text->size();
    const auto [stop, error] = std::from_chars(text->data() + 2, end, out, 16);
    if (error == std::errc() && stop == end) {
      return {};
    }
  }
  return "not a number of 64 bits that is written like \"0x12ab\"";
}

std::string read_width(const Scalar& value, std::uint8_t& out) {
  const auto* width = std::get_if<std::uint64_t>(&value);
  if (width == nullptr || (*width != 0 && std::ranges::find(kWidths, *width) == kWidths.end())) {
    return "not a width of the codec";
  }
  out = static_cast<std::uint8_t>(*width);
  return {};
}

std::string read_bytes(const Scalar& value, std::uint64_t& out) {
  return read_whole(value, 0, limits::kBytes, out);
}

std::string read_step(const Scalar& value, std::uint64_t& out) {
  return read_whole(value, 0, limits::kCount, out);
}

std::string read_dimension(const Scalar& value, std::int64_t& out) {
  return read_whole(value, 0, limits::kCount, out);
}

std::string read_number(const Scalar& value, double& out) {
  double number = std::numeric_limits<double>::quiet_NaN();
  if (const auto* whole = std::get_if<std::uint64_t>(&value)) {
    number = static_cast<double>(*whole);
  } else if (const auto* real = std::get_if<double>(&value)) {
    number = *real;
  }
  if (!(number >= 0 && number <= limits::kNumber)) {
    return "not a number from 0 to 1e100";
  }
  out = number;
  return {};
}

std::span<const Field<Profile>> profile_fields() { return kProfileFields; }
std::span<const Field<Unit>> unit_fields() { return kUnitFields; }

}  // namespace pleat::sensitivity
