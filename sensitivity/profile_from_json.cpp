// Reads the text of a profile event by event: a text of 256 MiB takes little more memory than the
// units it describes, and the first thing that is wrong ends it.
#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>
#include <utility>

#include "sensitivity/profile.h"
#include "sensitivity/profile_fields.h"
#include "sensitivity/profile_limits.h"

namespace pleat::sensitivity {
namespace {

using Json = nlohmann::json;

// Where the reader is:
//   kStart -> kProfile -> kUnits -> kUnit -> kShape
//                                         -> kCosts -> kCost
//                                         -> kMeasurements -> kMeasurement
//                                         -> kResults
// kUnknown: in the value of a field that this version does not know, at any depth. Such fields are
// passed over.
enum class Place : std::uint8_t {
  kStart,
  kProfile,
  kUnits,
  kUnit,
  kShape,
  kCosts,
  kCost,
  kMeasurements,
  kMeasurement,
  kResults,
  kUnknown,
};
constexpr std::size_t kDeepest = 16;

[[nodiscard]] Place place_of(List list) {
  switch (list) {
    case List::kUnits:
      return Place::kUnits;
    case List::kShape:
      return Place::kShape;
    case List::kCosts:
      return Place::kCosts;
    case List::kMeasurements:
      return Place::kMeasurements;
    case List::kResults:
      return Place::kResults;
    case List::kNone:
      break;
  }
  return Place::kUnknown;
}

// Which fields of a profile or a unit were there, and which is being read.
template <typename Row>
class Fields {
 public:
  explicit Fields(std::span<const Field<Row>> fields) : fields_(fields) {}
  void begin() { seen_ = 0; }
  // False: for the second time.
  [[nodiscard]] bool see(std::string_view name) {
    const auto found = std::ranges::find(fields_, name, &Field<Row>::name);
    present_ = found == fields_.end() ? nullptr : &*found;
    const std::uint32_t before = seen_;
    if (present_ != nullptr) {
      seen_ |= std::uint32_t{1} << (found - fields_.begin());
    }
    return present_ == nullptr || seen_ != before;
  }
  [[nodiscard]] bool seen(std::string_view name) const {
    const auto found = std::ranges::find(fields_, name, &Field<Row>::name);
    return (seen_ >> (found - fields_.begin()) & 1U) != 0;
  }
  [[nodiscard]] bool known() const { return present_ != nullptr; }
  [[nodiscard]] std::string_view name() const { return known() ? present_->name : ""; }
  [[nodiscard]] List list() const { return known() ? present_->list : List::kNone; }
  // Returns what is wrong.
  [[nodiscard]] std::string read(const Scalar& value, Row& row) const {
    if (!known()) {
      return {};
    }
    return present_->read == nullptr ? "not a list" : present_->read(value, row);
  }

 private:
  std::span<const Field<Row>> fields_;
  const Field<Row>* present_ = nullptr;
  std::uint32_t seen_ = 0;
};

class Reader final : public nlohmann::json_sax<Json> {
 public:
  // What is left to check once all is read.
  [[nodiscard]] bool complete() {
    if (!of_profile_.seen("pleat_profile") || !of_profile_.seen("units")) {
      return refuse("a field is missing, \"pleat_profile\" or \"units\"");
    }
    // Sorted, as keys could be made to collide in a hash table.
    std::vector<std::uint64_t> keys;
    keys.reserve(profile_.units.size());
    std::ranges::transform(profile_.units, std::back_inserter(keys), &Unit::key);
    std::ranges::sort(keys);
    return std::ranges::adjacent_find(keys) == keys.end() || refuse("two units have one key");
  }
  [[nodiscard]] Profile& profile() { return profile_; }
  [[nodiscard]] const std::string& message() const { return message_; }

  // ---- events; false ends the reading ----

  bool null() override { return scalar({}); }
  bool boolean(bool value) override { return scalar(value); }
  bool number_integer(std::int64_t value) override { return scalar(static_cast<double>(value)); }
  bool number_unsigned(std::uint64_t value) override { return scalar(value); }
  bool number_float(double value, const std::string& /*digits*/) override { return scalar(value); }
  bool string(std::string& value) override { return scalar(std::move(value)); }
  bool binary(Json::binary_t& /*value*/) override { return refuse("not JSON"); }

  bool start_object(std::size_t /*size*/) override {
    if (place() == Place::kStart) {
      return enter(Place::kProfile);
    }
    if (place() == Place::kUnits) {
      if (profile_.units.size() == limits::kUnits) {
        return refuse("more than " + std::to_string(limits::kUnits) + " units");
      }
      profile_.units.emplace_back();
      of_unit_.begin();
      return enter(Place::kUnit);
    }
    return in_unknown() ? enter(Place::kUnknown) : wrong("an object is not expected here");
  }

  bool key(std::string& name) override {
    if (place() == Place::kUnknown) {
      return true;
    }
    const bool first = place() == Place::kUnit ? of_unit_.see(name) : of_profile_.see(name);
    return first || wrong("stands there twice");
  }

  bool end_object() override {
    if (place() == Place::kUnit) {
      const Unit& unit = profile_.units.back();
      if (!of_unit_.seen("key")) {
        return wrong_with("key", "is missing");
      }
      if (!unit.costs.empty() && unit.costs.back().width != 0) {
        return wrong_with("costs", "the last one is not the exact one, of width 0");
      }
    }
    return leave();
  }

  bool start_array(std::size_t /*size*/) override {
    position_ = 0;
    if (in_unknown()) {
      return enter(Place::kUnknown);
    }
    List list = List::kNone;
    switch (place()) {
      case Place::kCosts:
        profile_.units.back().costs.emplace_back();
        return enter(Place::kCost);
      case Place::kMeasurements:
        profile_.units.back().measurements.emplace_back();
        return enter(Place::kMeasurement);
      case Place::kProfile:
        list = of_profile_.list();
        break;
      case Place::kUnit:
        list = of_unit_.list();
        break;
      default:
        break;
    }
    return list == List::kNone ? wrong("a list is not expected here") : enter(place_of(list));
  }

  bool end_array() override {
    if (place() == Place::kCost) {
      return position_ == 3 ? ascending() && leave() : wrong("a cost is a list of three");
    }
    if (place() == Place::kMeasurement && position_ != 2 && position_ != 3) {
      return wrong("a measurement is a list of two or three");
    }
    return leave();
  }

  bool parse_error(std::size_t position, const std::string& /*token*/,
                   const nlohmann::detail::exception& error) override {
    constexpr int kOutOfRange = 406;
    return refuse(error.id == kOutOfRange
                      ? "a number is too large"
                      : "it is no JSON from byte " + std::to_string(position) + " on");
  }

 private:
  [[nodiscard]] Place place() const { return places_.back(); }
  [[nodiscard]] bool in_unknown() const {
    return place() == Place::kUnknown || (place() == Place::kProfile && !of_profile_.known()) ||
           (place() == Place::kUnit && !of_unit_.known());
  }
  bool enter(Place next) {
    places_.push_back(next);
    return places_.size() <= kDeepest || refuse("it is nested too deeply");
  }
  bool leave() {
    places_.pop_back();
    return true;
  }

  bool refuse(std::string what) {
    message_ = std::move(what);
    return false;
  }
  bool wrong_with(std::string_view field, const std::string& what) {
    std::string where = place() > Place::kUnits && place() != Place::kUnknown
                            ? "unit " + std::to_string(profile_.units.size()) + ", "
                            : "";
    return refuse(where + '"' + std::string(field) + "\": " + what);
  }
  // Something is wrong with the field that is being read.
  bool wrong(const std::string& what) {
    if (place() == Place::kStart) {
      return refuse(what);
    }
    return wrong_with(place() > Place::kUnits ? of_unit_.name() : of_profile_.name(), what);
  }

  bool scalar(const Scalar& value) {
    ++position_;
    std::string what;
    switch (place()) {
      case Place::kProfile:
        what = of_profile_.read(value, profile_);
        break;
      case Place::kUnit:
        what = of_unit_.read(value, profile_.units.back());
        break;
      case Place::kShape:
        what = dimension(value, profile_.units.back().shape);
        break;
      case Place::kCost:
        what = of_cost(value, profile_.units.back().costs.back());
        break;
      case Place::kMeasurement:
        what = of_measurement(value, profile_.units.back().measurements.back());
        break;
      case Place::kResults:
        what = read_key(value, profile_.units.back().results.emplace_back());
        break;
      case Place::kUnknown:
        break;
      default:
        what = "a list or an object is expected here";
    }
    return what.empty() || wrong(what);
  }

  [[nodiscard]] static std::string dimension(const Scalar& value,
                                             std::vector<std::int64_t>& shape) {
    return shape.size() == limits::kDimensions ? "too many dimensions"
                                               : read_dimension(value, shape.emplace_back());
  }

  [[nodiscard]] std::string of_cost(const Scalar& value, WidthCost& cost) const {
    switch (position_) {
      case 1:
        return read_width(value, cost.width);
      case 2:
        return read_bytes(value, cost.bytes);
      case 3:
        if (std::string what = read_number(value, cost.error); !what.empty()) {
          return what;
        }
        return cost.width == 0 && cost.error != 0 ? "the exact one has an error" : "";
      default:
        return "a cost is a list of three";
    }
  }

  [[nodiscard]] std::string of_measurement(const Scalar& value, Measurement& measurement) const {
    switch (position_) {
      case 1:
        return read_step(value, measurement.step);
      case 2:
        return read_number(value, measurement.noise);
      case 3:
        return read_number(value, measurement.update_noise);
      default:
        return "a measurement is a list of two or three";
    }
  }

  // Whether the last two costs ascend.
  bool ascending() {
    const std::vector<WidthCost>& costs = profile_.units.back().costs;
    if (costs.size() < 2) {
      return true;
    }
    const unsigned before = costs[costs.size() - 2].width;
    const unsigned last = costs.back().width;
    return (before != 0 && (last > before || last == 0)) ||
           wrong("widths do not ascend, with the exact one last");
  }

  Profile profile_;
  std::string message_;
  std::vector<Place> places_{Place::kStart};
  Fields<Profile> of_profile_{profile_fields()};
  Fields<Unit> of_unit_{unit_fields()};
  std::size_t position_ = 0;  // in the innermost list
};

}  // namespace

ReadResult from_json(std::string_view text) {
  ReadResult result;
  if (text.substr(0, limits::kMarkWithin).find(limits::kMark) == std::string_view::npos) {
    result.status = ReadStatus::kForeign;
    result.message = "it is not a profile of Pleat";
    return result;
  }
  Reader reader;
  if (Json::sax_parse(text.begin(), text.end(), &reader) && reader.complete()) {
    result.profile = std::move(reader.profile());
  } else {
    result.status = ReadStatus::kDamaged;
    result.message = "the profile cannot be read: " + reader.message();
  }
  return result;
}

}  // namespace pleat::sensitivity
