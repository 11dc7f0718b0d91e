// The profile of a program: the makers, costs and noise of its saved tensors, kept from run to run.
// Each row is one *unit*, all saved tensors of one key; noise enters a unit as one. A row records
// its makers and readers, the cost of each width in bytes and in error, and the effect of its noise
// on the gradient. The file is JSON that a person can read.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

namespace pleat::sensitivity {

// The cost of keeping a unit at a width.
struct WidthCost {
  std::uint8_t width = 0;   // bits of the codec; 0: exact
  std::uint64_t bytes = 0;  // of the payloads in a step, headers and metadata among them
  double error = 0;         // squared error, as a multiple of that at 4 bits; 0 at width 0
};

// Which noise the bits are to make least: that of what an optimizer steps by.
enum class Objective : std::uint8_t {
  kGradient,  // of the gradient as it is: SGD
  kUpdate,    // of each parameter's gradient over the size of its elements: Adam and its like
};

// "gradient", "update".
[[nodiscard]] const char* name_of(Objective objective) noexcept;

// One estimate of what a unit's noise does.
struct Measurement {
  std::uint64_t step = 0;
  // Expected squared error of the gradient of all parameters if this unit alone is kept at 4 bits,
  // as a multiple of the gradient's squared norm.
  double noise = 0;
  // The same after each parameter's gradient has been divided by the root mean square of its
  // elements, noise of 4 bits among them. Both are equal where the elements of all parameters are
  // of one size. NaN: not known, and taken to be `noise`.
  double update_noise = std::numeric_limits<double>::quiet_NaN();

  [[nodiscard]] double of(Objective objective) const noexcept {
    return objective == Objective::kUpdate && !std::isnan(update_noise) ? update_noise : noise;
  }
};

struct Unit {
  std::uint64_t key = 0;
  std::string producer;  // the autograd node whose result it is
  std::string reader;    // the node that reads it in backward; several: separated by ", "
  std::string type;      // of its elements, as torch names it: "float32"
  std::vector<std::int64_t> shape;
  std::uint32_t tensors = 1;        // of the key in one step
  std::uint64_t bytes = 0;          // of these, uncompressed
  std::uint64_t payload_bytes = 0;  // as they were kept when the row was written
  std::uint8_t width = 0;           // as it was then; 0: exact
  // The steps to the width, "profile:3" (torch_bridge/core/decision.h); empty: unknown, as in
  // version 1.
  std::vector<std::string> trail;
  // Why the width is no choice of ours: "mask", "no_proof", "alive", ... Empty: noise is allowed.
  std::string fixed;
  std::uint8_t floor = 1;                 // the least width allowed
  std::string floor_reason;               // empty for 1
  std::vector<WidthCost> costs;           // ascending by width, but width 0 last; empty if `fixed`
  std::vector<Measurement> measurements;  // oldest first
  std::vector<std::uint64_t> results;     // keys of what is recomputed from it: they have its width
  bool distrusted = false;  // a check found more noise than was predicted: it gets the default

  // Its width is a choice.
  [[nodiscard]] bool may_be_noisy() const noexcept { return fixed.empty() && !costs.empty(); }
  // Its noise is known, and believed.
  [[nodiscard]] bool is_measured() const noexcept { return !distrusted && std::isfinite(noise()); }
  // The geometric mean of its measurements, in which one of half as many steps counts a quarter:
  // measurements of the first steps can be wrong by orders of magnitude later. Zeros only mean that
  // louder units hid a unit. They count only where all are zero, as the least positive number. NaN:
  // none.
  [[nodiscard]] double noise(Objective objective = Objective::kGradient) const noexcept;
  // The cost at the least width >= `width` that is a candidate; the exact one if there is none.
  // `width` 0: the exact one. `costs` must not be empty.
  [[nodiscard]] const WidthCost& cost_at(unsigned width) const noexcept;
  // The same where all units are to have one width: no less than the floor.
  [[nodiscard]] const WidthCost& uniform_cost(unsigned width) const noexcept {
    return cost_at(width > floor ? width : floor);
  }
};

struct Profile {
  std::string torch;  // the version that ran; empty: unknown
  std::uint64_t steps = 0;
  double bits = 4;  // that were asked for
  Objective objective = Objective::kGradient;
  std::uint64_t passes = 0;  // extra backward passes spent so far
  double seconds = 0;        // that these took
  // At the peak of a step: bytes of all but the payloads, and the part of a step's payloads that
  // was there. 0: unknown.
  std::uint64_t beside = 0;
  double at_peak = 0;
  std::vector<Unit> units;  // in the order in which backward reads them
};

// ---- files ----

enum class ReadStatus : std::uint8_t {
  kOk,
  kMissing,     // there is no such file: a run may make one
  kForeign,     // it is not a profile: never overwritten
  kDamaged,     // a profile, but broken or of a later version: never overwritten either
  kUnreadable,  // the system refuses: `message` says why
};
struct ReadResult {
  ReadStatus status = ReadStatus::kOk;
  Profile profile;      // of kOk
  std::string message;  // else: one line without the file's name
};

// A larger file is no profile: a unit takes about 300 bytes. Reading takes at most 20 times more.
inline constexpr std::size_t kMostProfileBytes = std::size_t{32} << 20;
inline constexpr std::string_view kTooLargeProfile = "it has more than 32 MiB";

// The text of a profile: JSON with a line for each unit, ending in a line end. Cuts names of more
// than 4096 bytes and replaces what is no UTF-8 in them; leaves out measurements that are NaN.
[[nodiscard]] std::string to_json(const Profile& profile);
// From any bytes, of any origin and size. Throws nothing but std::bad_alloc.
[[nodiscard]] ReadResult from_json(std::string_view text);

// Reads a regular file, through links. Directories, devices, and links to them are kForeign, and so
// is a file of more than kMostProfileBytes, unread.
[[nodiscard]] ReadResult read_profile(const std::string& path);
// Writes beside the file and renames, so that readers see the old or the new; mode 0600. Replaces
// nothing but a profile that can be read, and no link. Writes nothing that could not be read again,
// such as widths that no codec has. Returns an empty text, or one line that says what went wrong,
// without the file's name.
[[nodiscard]] std::string write_profile(const Profile& profile, const std::string& path);

// %r: rank, %p: process id, %%: a percent sign. Other letters after a percent sign stay as they
// are.
[[nodiscard]] std::string expand_path(std::string_view pattern, std::uint64_t rank,
                                      std::uint64_t process);

// Takes over what `older` knows and `newer` does not: units of other keys, measurements. A unit of
// both has the row of `newer`, and the measurements of both in the order of their steps, each step
// once, the last 16 of them.
void merge_into(Profile& newer, const Profile& older);

// Some unit's noise is known.
[[nodiscard]] bool any_measured(const Profile& profile) noexcept;

// Spearman's rank correlation of the gradient's noise that two steps measured, over units that both
// measured; NaN for fewer than 3.
[[nodiscard]] double rank_correlation(const Profile& profile, std::uint64_t step_a,
                                      std::uint64_t step_b);

}  // namespace pleat::sensitivity
