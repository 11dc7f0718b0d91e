// The option table: the one place where keys of PLEAT_CONF, their ranges, defaults and help stand.
// Torch-free, so that the `pleat` command prints the same table that the bridge obeys.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "torch_bridge/c_abi.h"

namespace pleat::bridge {

enum class When : std::uint8_t { kRelease, kForwardEnd };
enum class Place : std::uint8_t { kArena, kInPlace };
enum class Mode : std::uint8_t {
  kOff,       // hooks and pool active, nothing compressed
  kLossless,  // only exact forms
  kLossy,     // `bits` per lossy element
};

enum class HugePages : std::uint8_t {
  kAuto,    // where memory turns out to be written densely
  kAlways,  // from the first touch
  kNever,
};

// Where noise is allowed.
enum class Rule : std::uint8_t {
  kProof,     // where it is shown to be harmless
  kOperands,  // at operands of contractions with weights and inputs of native normalisations
  // Faults, for tests that have to find them:
  kAssumed,      // wherever the operator that saves may bear it: no proof is asked for
  kNoLines,      // kProof, but in flat rows, too, and small rows get the noise of large ones
  kNoSides,      // kProof, but where only sides are read, too
  kNoLatePoles,  // kProof, but a proof holds, whatever is recorded later
};

// How the bits of each saved tensor are found.
enum class Sensitivity : std::uint8_t {
  kOff,    // one width for all, or what a profile says
  kOn,     // from a few extra backward passes, now and then
  kExact,  // from one extra pass for each tensor
  // To compare with. Widths by sensitivity/gact.h; no width is checked.
  kGact,      // algorithm 1 of GACT: two passes for each tensor
  kGactCode,  // what its program does: three
};
// One pass or more for each tensor: their number is what the user has asked for.
[[nodiscard]] constexpr bool takes_tensors_singly(Sensitivity how) noexcept {
  return how >= Sensitivity::kExact;
}
[[nodiscard]] constexpr bool is_of_gact(Sensitivity how) noexcept {
  return how >= Sensitivity::kGact;
}

// Which noise the bits of each tensor make least (sensitivity/profile.h).
enum class Objective : std::uint8_t {
  kAuto,  // as the class of the optimizer says that steps
  kGradient,
  kUpdate,
};

// Which stacks a trace has.
enum class Stacks : std::uint8_t {
  kNone = PLEAT_TRACE_STACKS_NONE,
  kPython = PLEAT_TRACE_STACKS_PYTHON,
  kNative = PLEAT_TRACE_STACKS_NATIVE,
  kBoth = PLEAT_TRACE_STACKS_BOTH,
};

// A function of which the user promises that noise in what it saves is harmless (proof_book.h).
struct TrustedName {
  std::string name;     // of its class, or of its nodes
  bool closes = false;  // it closes the paths that end in it
};

struct Options {
  Mode mode = Mode::kLossy;
  double bits = 4.0;  // 1..8, with kLossy
  When when = When::kRelease;
  Place place = Place::kArena;
  std::size_t min_bytes = 64u << 10;        // threshold of pool and eligibility; 0: everything
  std::uint64_t seed = 0;                   // run seed of the dither
  bool reuse_gradients = true;              // write gradients of activations over their source
  bool recompute = true;                    // results of activations from their compressed argument
  HugePages huge_pages = HugePages::kAuto;  // of the memory for tensors; read at the start only
  int verbose = 0;                          // 0..1
  std::vector<TrustedName> trust;
  Rule rule = Rule::kProof;
  bool cuda = true;        // CUDA tensors too
  unsigned check = 0;      // backward passes to look at; `pleat check`
  std::string check_file;  // what was found is added to it
  Sensitivity sensitivity = Sensitivity::kOff;
  Objective objective = Objective::kAuto;
  std::string profile;  // file that says what is known of each saved tensor
  std::optional<std::uint64_t>
      refresh;             // steps between bursts; 0: one burst; nothing: 990, 2000, ..
  std::size_t budget = 0;  // bytes at the peak of a step, instead of bits; 0: none
  // The most noise of a budget, in percent; nothing: 30, or more (sensitivity::noise_ceiling()).
  std::optional<std::uint64_t> max_noise;
  bool verify = false;        // after a measurement: of each tensor alone, what it predicts
  bool probe_custom = false;  // functions in Python may run in extra passes
  std::string trace;  // file or folder of the trace that begins with the process; empty: none
  std::size_t trace_size = 0;  // bytes of a trace, the part before the present one included; 0: any
  Stacks stacks = Stacks::kPython;
  bool modules = false;   // the trace says which module of torch.nn runs
  bool copy_raw = false;  // debug: raw blocks go through a payload instead of being held
};

inline constexpr std::size_t kLeastTraceBytes = std::size_t{1} << 20;  // of Options::trace_size

enum class Audience : std::uint8_t {
  kUser,
  kDetail,
  kWayOut,  // switches a part of Pleat off, or puts an older way in its place
  kCheck,   // set by `pleat check`
  kTest,    // read from PLEAT_TEST_CONF only
};

struct OptionRow {
  std::string_view key;
  std::string_view default_value;
  std::string_view allowed;  // "off | lossless | 1..8"
  std::string_view help;
  Audience audience = Audience::kUser;
};

// True if --help and `pleat doctor` show the option.
[[nodiscard]] constexpr bool is_shown(const OptionRow& row) noexcept {
  return row.audience == Audience::kUser || row.audience == Audience::kDetail;
}

// Every key of PLEAT_CONF, in the order of the documentation.
[[nodiscard]] std::span<const OptionRow> option_table() noexcept;

// The value in force of a key of PLEAT_CONF, as flags and Python's keyword arguments take it;
// spelled() (option_text.h) is how PLEAT_CONF has it.
[[nodiscard]] std::string option_value(const Options& options, std::string_view key);

// True if the option `trust` takes it.
[[nodiscard]] bool is_function_name(std::string_view name) noexcept;

enum class ConfSource : std::uint8_t { kUser, kTests };  // PLEAT_CONF, PLEAT_TEST_CONF

// Parses "key:value,key:value" (option_text.h has the grammar) on top of `options`. The last of two
// equal keys wins. A key or value that does not parse leaves its option as it was and adds one line
// to `problems`, naming key, value, the allowed values and the value used instead (values are cut
// to 64 characters, control characters shown as '?'). After 16 lines problems are only counted.
// kTests has its own keys: those that a user must not set, and more values of `sensitivity`. Never
// throws on bad input; handles 64 kB values.
void parse_options(std::string_view conf, Options& options, std::vector<std::string>& problems,
                   ConfSource source = ConfSource::kUser);

}  // namespace pleat::bridge
