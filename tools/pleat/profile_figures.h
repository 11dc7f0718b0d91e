// The figures of a profile, in numbers and in words, for the tables and the page of
// `pleat profile`.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "answer.h"
#include "sensitivity/profile.h"

namespace pleat::cli {

inline constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();

struct UnitFigures {
  const sensitivity::Unit* unit = nullptr;
  bool lossy = false;     // noise is allowed, and the widths have costs
  bool measured = false;  // as the assignment understands it
  // By the assignment, and with one width for all. As it was kept if it is not `lossy`. Width 0:
  // exact.
  unsigned width = 0;
  unsigned uniform_width = 0;
  std::uint64_t payload_bytes = 0;
  std::uint64_t uniform_bytes = 0;
  // NaN if it is not measured.
  double sensitivity = kUnknown;  // noise at 4 bits, over the gradient's squared norm
  double noise = kUnknown;        // at the width of the assignment
  double share = kUnknown;        // of the noise of all
};

// Two steps that measured at least half of the units that are measured: the first and the last.
struct Stability {
  std::uint64_t first = 0;
  std::uint64_t last = 0;
  double correlation = kUnknown;  // of ranks; NaN: fewer than three units
};

struct ProfileFigures {
  const sensitivity::Profile* profile = nullptr;
  double bits = 0;
  std::vector<UnitFigures> units;  // in the profile's order
  std::size_t lossy = 0;           // how many units
  std::size_t measured = 0;
  std::size_t distrusted = 0;
  std::uint64_t bytes = 0;  // of all units, uncompressed
  std::uint64_t lossy_bytes = 0;
  std::uint64_t measured_bytes = 0;
  std::uint64_t payload_bytes = 0;           // of all units
  std::uint64_t lossy_payload_bytes = 0;     // with the assignment
  std::uint64_t measured_payload_bytes = 0;  // with the assignment
  std::uint64_t uniform_bytes = 0;           // of lossy units with one width
  double mean_bits = kUnknown;               // NaN: no unit is lossy
  // Over the gradient's squared norm; of measured units.
  double noise = 0;
  double uniform_noise = 0;
  double least_noise = 0;  // no assignment of so many bytes has less
  bool fits = true;
  std::vector<std::uint64_t> steps;  // that measured something, ascending
  std::optional<Stability> stability;

  // How far the noise is above the least, in parts of it; NaN: no measurement, or the least is
  // zero and the noise is not.
  [[nodiscard]] double gap() const noexcept;
};

// `bits` 1..8. The profile must outlive what is returned.
[[nodiscard]] ProfileFigures figures_of(const sensitivity::Profile& profile, double bits);
// The `bits` of a profile, 1..8 whatever its file says.
[[nodiscard]] double bits_of(const sensitivity::Profile& profile) noexcept;

// The assignment for one number of bits.
struct CurvePoint {
  double bits = 0;
  std::uint64_t measured_bytes = 0;  // of payloads
  std::uint64_t lossy_bytes = 0;
  std::uint64_t all_bytes = 0;
  double ratio = 0;                 // uncompressed bytes of all units over `all_bytes`
  double noise = 0;                 // over the gradient's squared norm
  std::uint64_t uniform_bytes = 0;  // of lossy units with one width
  double uniform_noise = 0;
  double uniform_bits = kUnknown;  // that would have as much noise; NaN: no width of 1..8 has
};
// For 1.5, 2, 2.5, ... 8 bits.
[[nodiscard]] std::vector<CurvePoint> curve_of(const sensitivity::Profile& profile);

// Returns nullopt if it is no profile: the reason is on stderr.
[[nodiscard]] std::optional<sensitivity::Profile> load_profile(const std::string& path);

// ---- tables ----

[[nodiscard]] Table unit_table(const std::vector<UnitFigures>& rows, bool with_trail = false);
// `known`: a unit is measured.
[[nodiscard]] Table curve_table(const std::vector<CurvePoint>& curve, bool known);

// ---- JSON ----

// Who a unit is: key, producer, reader, type, shape, tensors, bytes.
[[nodiscard]] Json identity(const sensitivity::Unit& unit);
// The figures of the whole profile, without `units`.
[[nodiscard]] Json summary(const ProfileFigures& figures);

// ---- words ----

[[nodiscard]] std::string hexadecimal(std::uint64_t key);
[[nodiscard]] std::string width_text(unsigned width);              // "4", "exact"
[[nodiscard]] std::string bits_text(double bits);                  // "4", "2.5"
[[nodiscard]] std::string form_of(const sensitivity::Unit& unit);  // "float32 [32,64]"
[[nodiscard]] std::string megabytes(std::uint64_t bytes);          // "12.58", without the unit
[[nodiscard]] std::string noise_text(double noise);                // "1.3e-04"; NaN: "-"
[[nodiscard]] std::string norm_text(double noise);                 // "1.14 %" of the norm
[[nodiscard]] std::string share_text(double share);                // "12.5 %"
// Why its width is as it is; empty: it is what the assignment found.
[[nodiscard]] std::string why(const UnitFigures& figures);

}  // namespace pleat::cli
