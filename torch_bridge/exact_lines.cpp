#include "torch_bridge/exact_lines.h"

#include <emmintrin.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "compress/group_math.h"

namespace pleat::bridge {
namespace {

using compress::ElementType;

constexpr std::size_t kGroup = 256;
constexpr std::size_t kProbe = 16;  // elements of a row
constexpr std::size_t kManyRows = 1024, kProbeEvery = 8;
constexpr std::size_t kShortest = kShortestLine;
constexpr std::size_t kSamples = 64;   // rows, and groups, of a matrix whose columns are looked at
constexpr std::size_t kMostLines = std::size_t{1} << 31;
constexpr float kSteps = 4;  // that a line must at least span: of Gaussian data the noise is a third then

struct Float32 {
  const float* data;
  float operator[](std::size_t i) const noexcept { return data[i]; }
};
struct BFloat16 {
  const std::uint16_t* data;
  float operator[](std::size_t i) const noexcept {
    return std::bit_cast<float>(static_cast<std::uint32_t>(data[i]) << 16);
  }
};
struct Float16 {
  const std::uint16_t* data;
  float operator[](std::size_t i) const noexcept { return compress::float_of_half(data[i]); }
};

// Four at a time, of which a minimum or maximum passes over what is not a number.
__m128 four(const Float32& values, std::size_t i) noexcept { return _mm_loadu_ps(values.data + i); }
__m128 four(const BFloat16& values, std::size_t i) noexcept {
  const __m128i words = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(values.data + i));
  return _mm_castsi128_ps(_mm_unpacklo_epi16(_mm_setzero_si128(), words));
}
__m128 four(const Float16& values, std::size_t i) noexcept {
  return _mm_setr_ps(values[i], values[i + 1], values[i + 2], values[i + 3]);
}

// Largest less smallest of [begin, end); what is not finite makes it so, or is passed over.
template <class Values>
float range_of(const Values& values, std::size_t begin, std::size_t end) noexcept {
  float low = values[begin];
  float high = low;
  std::size_t i = begin + 1;
  if (end - begin >= 16) {
    __m128 lows = four(values, begin);
    __m128 highs = lows;
    for (i = begin + 4; i + 4 <= end; i += 4) {
      const __m128 v = four(values, i);
      lows = _mm_min_ps(v, lows);
      highs = _mm_max_ps(v, highs);
    }
    alignas(16) std::array<float, 4> least, most;
    _mm_store_ps(least.data(), lows);
    _mm_store_ps(most.data(), highs);
    low = least[0];
    high = most[0];
    for (std::size_t lane = 1; lane < 4; ++lane) {
      low = least[lane] < low ? least[lane] : low;
      high = most[lane] > high ? most[lane] : high;
    }
  }
  for (; i < end; ++i) {
    const float value = values[i];
    low = value < low ? value : low;
    high = value > high ? value : high;
  }
  return high - low;
}

constexpr float levels(std::uint8_t bits) noexcept { return static_cast<float>((1u << bits) - 1); }

enum class Mark : std::uint8_t {
  kFine,
  kCoarse,  // flat at the width asked for
  kFlat,    // and at 8 bits
  kZero,
};

// The lines that are not fine. Takes no memory before there is one.
class Marks {
 public:
  explicit Marks(std::size_t lines) : lines_(lines) {}

  void raise(std::size_t line, Mark mark) {
    if (marks_.empty()) {
      marks_.resize(lines_, Mark::kFine);
    }
    marks_[line] = std::max(marks_[line], mark);
  }
  [[nodiscard]] bool zero(std::size_t line) const noexcept {
    return !marks_.empty() && marks_[line] == Mark::kZero;
  }

  // All lines have `line_bytes`, together `elements`.
  [[nodiscard]] LinePlan plan(std::uint8_t bits, std::size_t elements, std::size_t line_bytes) const {
    LinePlan plan{bits, {}};
    const auto of = [&](Mark mark) {
      return static_cast<std::size_t>(std::count(marks_.begin(), marks_.end(), mark));
    };
    const std::size_t coarse = of(Mark::kCoarse);
    if (coarse != 0 && elements < elements * bits / 8 + coarse * line_bytes) {
      plan.bits = 8;
    }
    for (std::size_t line = 0; line < marks_.size(); ++line) {
      const Mark mark = marks_[line];
      if (mark == Mark::kFine || (mark == Mark::kCoarse && plan.bits == 8)) {
        continue;
      }
      const bool zero = mark == Mark::kZero;
      if (!plan.exact.empty() && plan.exact.back().first + plan.exact.back().count == line &&
          plan.exact.back().zero == zero) {
        ++plan.exact.back().count;
      } else {
        plan.exact.push_back({static_cast<std::uint32_t>(line), 1, zero});
      }
    }
    return plan;
  }

 private:
  std::size_t lines_;
  std::vector<Mark> marks_;
};

template <class Values>
bool is_zero(const Values& values, std::size_t begin, std::size_t end) noexcept {
  while (end > begin) {
    if (!(values[--end] == 0.0f)) {  // nearly always the first
      return false;
    }
  }
  return true;
}

template <class Values>
void mark_zero_rows(const Values& values, std::size_t rows, std::size_t row, Marks& marks) {
  const auto zero = [&](std::size_t r) { return is_zero(values, r * row, (r + 1) * row); };
  // A look at every row would take 1 % of a step of a model of width 128. Padding is many rows.
  if (rows >= kManyRows) {
    std::size_t probed = 0;
    while (probed < rows && !zero(probed)) {
      probed += kProbeEvery;
    }
    if (probed >= rows && !zero(rows - 1)) {
      return;
    }
  }
  for (std::size_t r = 0; r < rows; ++r) {
    if (zero(r)) {
      marks.raise(r, Mark::kZero);
    }
  }
}

template <class Values>
void mark_flat_rows(const Values& values, std::size_t elements, std::size_t row, std::uint8_t bits,
                    Marks& marks) {
  std::size_t probed = elements;  // row: the last of a group is the first of the next
  float probe = 0;
  for (std::size_t begin = 0; begin < elements; begin += kGroup) {
    const std::size_t end = std::min(elements, begin + kGroup);
    const std::size_t first = begin / row;
    const std::size_t last = (end - 1) / row;
    if (first == last) {
      continue;
    }
    float least = std::numeric_limits<float>::infinity();
    float most = 0;
    for (std::size_t r = first; r <= last; ++r) {
      if (!marks.zero(r)) {
        probe = probed == r ? probe : range_of(values, r * row, std::min((r + 1) * row, r * row + kProbe));
        probed = r;
        least = std::min(least, probe);
        most = std::max(most, probe);
      }
    }
    if (levels(bits) * least >= 4 * most) {  // half of what a look at the whole asks for
      continue;
    }
    const float step = kSteps * range_of(values, begin, end);
    if (!std::isfinite(step)) {
      continue;  // such a group is kept as it is
    }
    for (std::size_t r = first; r <= last; ++r) {
      if (marks.zero(r)) {
        continue;
      }
      const float range = range_of(values, r * row, (r + 1) * row);
      if (range == 0 && is_zero(values, r * row, (r + 1) * row)) {
        marks.raise(r, Mark::kZero);
      } else if (levels(8) * range < step) {
        marks.raise(r, Mark::kFlat);
      } else if (levels(bits) * range < step) {
        marks.raise(r, Mark::kCoarse);
      }
    }
  }
}

// Down the columns of a matrix. Groups run along its rows, so a column is in as many as there are rows, if
// always with the same neighbours: it is held against the root mean square of the groups it is in.
template <class Values>
void mark_flat_columns(const Values& values, std::size_t rows, std::size_t columns, std::uint8_t bits,
                       Marks& marks) {
  const std::size_t elements = rows * columns;
  const std::size_t samples = std::min(rows, kSamples);
  const std::size_t blocks = (columns + kGroup - 1) / kGroup;  // of columns
  std::vector<double> squares(blocks);
  std::vector<std::uint32_t> seen(blocks);
  std::vector<float> low(columns, std::numeric_limits<float>::infinity());
  std::vector<float> high(columns, -std::numeric_limits<float>::infinity());
  const auto add_row = [&](std::size_t r) {
    for (std::size_t c = 0; c < columns; ++c) {
      const float value = values[r * columns + c];
      low[c] = value < low[c] ? value : low[c];
      high[c] = value > high[c] ? value : high[c];
    }
  };
  for (std::size_t sample = 0; sample < samples; ++sample) {
    const std::size_t row = sample * rows / samples;
    add_row(row);
    for (std::size_t block = 0; block < blocks; ++block) {
      const std::size_t begin = (row * columns + block * kGroup) / kGroup * kGroup;  // group of its first column
      const float range = range_of(values, begin, std::min(elements, begin + kGroup));
      if (std::isfinite(range)) {
        squares[block] += static_cast<double>(range) * range;
        ++seen[block];
      }
    }
  }
  const auto step_of = [&](std::size_t c) {
    // A block's last columns lie in the group of the next block's first, unless rows are whole groups.
    const std::size_t block = c / kGroup;
    const std::size_t next = columns % kGroup == 0 ? block : std::min(block + 1, blocks - 1);
    double most = 0;
    for (const std::size_t b : {block, next}) {
      most = std::max(most, seen[b] != 0 ? squares[b] / seen[b] : 0.0);
    }
    return static_cast<float>(kSteps * std::sqrt(most));
  };
  const auto is_flat = [&](std::size_t c, std::uint8_t at_bits) {
    return levels(at_bits) * (high[c] - low[c]) < step_of(c);
  };
  bool any = false;
  for (std::size_t c = 0; c < columns && !any; ++c) {
    any = is_flat(c, bits);
  }
  if (!any) {
    return;
  }
  std::vector<std::uint8_t> other(columns);  // than zero
  for (std::size_t r = 0; r < rows; ++r) {
    add_row(r);
    for (std::size_t c = 0; c < columns; ++c) {
      other[c] = static_cast<std::uint8_t>(other[c] | !(values[r * columns + c] == 0.0f));
    }
  }
  for (std::size_t c = 0; c < columns; ++c) {
    if (other[c] == 0) {
      marks.raise(c, Mark::kZero);
    } else if (is_flat(c, 8)) {
      marks.raise(c, Mark::kFlat);
    } else if (is_flat(c, bits)) {
      marks.raise(c, Mark::kCoarse);
    }
  }
}

template <class Values>
LinePlan plan_of(const Values& values, std::size_t elements, std::size_t item, Lines lines, std::uint8_t bits) {
  const std::size_t length = lines.length;
  const std::size_t rows = elements / length;
  if (lines.look == Look::kColumns) {
    Marks marks(length);
    if (rows >= kShortest) {
      mark_flat_columns(values, rows, length, bits, marks);
    }
    return marks.plan(bits, elements, rows * item);
  }
  if (length % kGroup == 0 || rows >= kMostLines) {
    return {bits, {}};
  }
  Marks marks(rows);
  mark_zero_rows(values, rows, length, marks);
  if (lines.look == Look::kRows && length >= kShortest) {
    mark_flat_rows(values, elements, length, bits, marks);
  }
  return marks.plan(bits, elements, length * item);
}

// ---- patches ----

constexpr std::uint64_t kPatchMagic = 0x3148'4354'4150'4c50ULL;  // "PLPATCH1"

struct PatchHeader {
  std::uint64_t magic;
  std::uint64_t bytes;  // of the whole patch
  std::uint64_t runs;
  std::uint32_t length;
  Look look;
  std::uint8_t item;
  std::uint16_t reserved;
};

// What the runs are of, in bytes.
struct Geometry {
  std::size_t item, length, rows;
  bool columns;

  [[nodiscard]] std::size_t lines() const noexcept { return columns ? length : rows; }
  [[nodiscard]] std::size_t line_bytes() const noexcept { return (columns ? rows : length) * item; }

  // Calls visit(offset, bytes) for every piece of a run that lies in one.
  template <class Visit>
  void for_each_piece(const LineRun& run, const Visit& visit) const {
    if (!columns) {
      visit(run.first * length * item, run.count * length * item);
      return;
    }
    for (std::size_t r = 0; r < rows; ++r) {
      visit((r * length + run.first) * item, run.count * item);
    }
  }
};

Geometry geometry_of(Lines lines, std::size_t elements, std::size_t item) noexcept {
  return {item, lines.length, elements / lines.length, lines.look == Look::kColumns};
}

constexpr std::size_t head_bytes(std::size_t runs) noexcept { return sizeof(PatchHeader) + runs * sizeof(LineRun); }

}  // namespace

LinePlan plan_lines(const void* data, std::size_t elements, ElementType type, Lines lines, std::uint8_t bits) {
  if (lines.look == Look::kNone || lines.length < 2 || elements % lines.length != 0 || bits == 0) {
    return {bits, {}};
  }
  const std::size_t item = compress::element_size(type);
  switch (type) {
    case ElementType::kFloat32:
      return plan_of(Float32{static_cast<const float*>(data)}, elements, item, lines, bits);
    case ElementType::kBFloat16:
      return plan_of(BFloat16{static_cast<const std::uint16_t*>(data)}, elements, item, lines, bits);
    case ElementType::kFloat16:
      return plan_of(Float16{static_cast<const std::uint16_t*>(data)}, elements, item, lines, bits);
    default:
      return {bits, {}};
  }
}

std::size_t patch_bytes(const LinePlan& plan, Lines lines, std::size_t elements, ElementType type) noexcept {
  const Geometry geometry = geometry_of(lines, elements, compress::element_size(type));
  std::size_t bytes = head_bytes(plan.exact.size());
  for (const LineRun& run : plan.exact) {
    bytes += run.zero != 0 ? 0 : run.count * geometry.line_bytes();
  }
  return bytes;
}

void write_patch(const LinePlan& plan, Lines lines, const void* data, std::size_t elements, ElementType type,
                 void* patch) noexcept {
  const std::size_t item = compress::element_size(type);
  const PatchHeader header{kPatchMagic, patch_bytes(plan, lines, elements, type), plan.exact.size(),
                           lines.length, lines.look, static_cast<std::uint8_t>(item), 0};
  auto* out = static_cast<std::byte*>(patch);
  std::memcpy(out, &header, sizeof header);
  std::memcpy(out + sizeof header, plan.exact.data(), plan.exact.size() * sizeof(LineRun));
  out += head_bytes(plan.exact.size());
  const Geometry geometry = geometry_of(lines, elements, item);
  for (const LineRun& run : plan.exact) {
    if (run.zero == 0) {
      geometry.for_each_piece(run, [&](std::size_t offset, std::size_t bytes) {
        std::memcpy(out, static_cast<const std::byte*>(data) + offset, bytes);
        out += bytes;
      });
    }
  }
}

bool is_patch(const void* data, std::size_t bytes) noexcept {
  std::uint64_t magic = 0;
  if (bytes >= sizeof magic) {
    std::memcpy(&magic, data, sizeof magic);
  }
  return magic == kPatchMagic;
}

std::size_t check_patch(const void* patch, std::size_t bytes, std::size_t target_bytes) noexcept {
  PatchHeader header{};
  if (!is_patch(patch, bytes) || bytes < sizeof header) {
    return 0;
  }
  std::memcpy(&header, patch, sizeof header);
  const bool sound = (header.look == Look::kZeroRows || header.look == Look::kRows || header.look == Look::kColumns) &&
                     (header.item == 2 || header.item == 4) && header.reserved == 0 && header.length >= 2 && target_bytes != 0 &&
                     target_bytes % (std::size_t{header.item} * header.length) == 0 &&
                     header.runs <= (bytes - sizeof header) / sizeof(LineRun) && header.bytes <= bytes &&
                     header.bytes >= head_bytes(header.runs);
  if (!sound) {
    return 0;
  }
  const Geometry geometry = geometry_of({header.look, header.length}, target_bytes / header.item, header.item);
  std::size_t left = header.bytes - head_bytes(header.runs);
  std::size_t free_from = 0;
  for (std::size_t i = 0; i < header.runs; ++i) {
    LineRun run{};
    std::memcpy(&run, static_cast<const std::byte*>(patch) + head_bytes(i), sizeof run);
    if (run.first < free_from || run.first > geometry.lines() || run.count > geometry.lines() - run.first) {
      return 0;
    }
    free_from = run.first + std::size_t{run.count};
    if (run.zero == 0) {
      if (run.count > left / geometry.line_bytes()) {
        return 0;
      }
      left -= run.count * geometry.line_bytes();
    }
  }
  return left == 0 ? header.bytes : 0;
}

void apply_patch(const void* patch, void* target, std::size_t target_bytes) noexcept {
  PatchHeader header{};
  std::memcpy(&header, patch, sizeof header);
  const Geometry geometry = geometry_of({header.look, header.length}, target_bytes / header.item, header.item);
  const auto* in = static_cast<const std::byte*>(patch) + head_bytes(header.runs);
  for (std::size_t i = 0; i < header.runs; ++i) {
    LineRun run{};
    std::memcpy(&run, static_cast<const std::byte*>(patch) + head_bytes(i), sizeof run);
    geometry.for_each_piece(run, [&](std::size_t offset, std::size_t bytes) {
      std::byte* const at = static_cast<std::byte*>(target) + offset;
      if (run.zero != 0) {
        std::memset(at, 0, bytes);
      } else {
        std::memcpy(at, in, bytes);
        in += bytes;
      }
    });
  }
}

}  // namespace pleat::bridge
