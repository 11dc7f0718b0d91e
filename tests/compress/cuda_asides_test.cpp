// Tests the sections that a device keeps next to codes. The kernels' code runs on the CPU, tiles in
// random order, against the results of the host.
#include "compress/cuda/device_asides.h"

#include <optional>
#include <set>

#include "compress/block/group_steps.h"
#include "compress/lines/exact_lines.h"
#include "compress/sides/sides.h"
#include "tests/compress/emulated_kernels.h"
#include "tests/compress/emulated_payload.h"
#include "tests/compress/recorder.h"

namespace pleat::compress::test {
namespace {

using cuda::LineTask;
using cuda::NearZeroTask;

constexpr unsigned char kUntouched = 0x5A;

std::mt19937_64& random_source() {
  static std::mt19937_64 random(seed());
  return random;
}
unsigned any_of(unsigned n) { return static_cast<unsigned>(random_source()() % n); }

Bytes copy_of(const Bytes& from, std::size_t shift) {
  Bytes to(from.size(), shift);
  std::memcpy(to.data(), from.data(), from.size());
  return to;
}

// ---- lines ----

cuda::LineJob line_job(const Recorder::Launch& launch, unsigned job = 0) {
  cuda::LineBatch batch;
  static_assert(sizeof batch == sizeof launch.batch);
  std::memcpy(&batch, &launch.batch, sizeof batch);
  return batch.job[job];
}

struct Matrix {
  ElementType type;
  std::size_t rows;
  std::uint32_t length;
  Look look;

  std::size_t elements() const { return rows * length; }
  Lines lines() const { return {look, length}; }
  std::size_t element(std::size_t line, std::size_t at) const {
    return look == Look::kColumns ? at * length + line : line * length + at;
  }
  std::size_t line_count() const { return look == Look::kColumns ? length : rows; }
  std::size_t line_length() const { return look == Look::kColumns ? rows : length; }
};

// Lines of very different deviation, some of zeros, some with NaN or Inf.
Bytes content_of(const Matrix& matrix, bool nonfinite) {
  auto& random = random_source();
  std::normal_distribution<double> normal;
  Bytes source(matrix.elements() * element_size(matrix.type));
  for (std::size_t line = 0; line < matrix.line_count(); ++line) {
    const double scale = random() % 5 == 0 ? 0 : std::pow(10, double(random() % 7) - 4);
    const double shift = random() % 2 == 0 ? 0 : normal(random);
    const bool zero = random() % 9 == 0;
    for (std::size_t at = 0; at < matrix.line_length(); ++at)
      set_value(matrix.type, source.data(), matrix.element(line, at),
                zero ? (at % 2 == 0 ? 0.0 : -0.0) : shift + scale * normal(random));
    const bool all_nan = nonfinite && random() % 10 == 0;
    for (std::size_t at = 0; all_nan && at < matrix.line_length(); ++at)
      set_value(matrix.type, source.data(), matrix.element(line, at), NAN);
    // Not among the first four: there a NaN hides what the host's vectors see.
    if (nonfinite && random() % 4 == 0 && matrix.line_length() >= 8)
      set_value(matrix.type, source.data(), matrix.element(line, 4 + random() % 4),
                random() % 2 == 0 ? NAN : INFINITY);
  }
  return source;
}

// By line: 'z' for zeros, 'f' for a flat one, ' ' for others.
std::string expected_lines(const Matrix& matrix, const Bytes& source,
                           const std::vector<float>& steps) {
  std::string kinds(matrix.line_count(), ' ');
  const block::LinePlan plan =
      block::flat_lines(source.data(), matrix.elements(), matrix.type, matrix.lines(), steps);
  for (const block::LineRun& run : plan.exact)
    for (std::size_t line = run.first; line < run.first + std::size_t{run.count}; ++line)
      kinds[line] = run.zero != 0 ? 'z' : 'f';
  if (matrix.look == Look::kColumns) return kinds;
  // The host looks for rows of zeros by samples.
  for (std::size_t line = 0; line < matrix.rows; ++line) {
    bool zero = true;
    for (std::size_t at = 0; at < matrix.length; ++at)
      zero &= value_at(matrix.type, source.data(), line * matrix.length + at) == 0;
    if (zero) kinds[line] = 'z';
  }
  return kinds;
}

LineTask line_task(const Matrix& matrix, unsigned bits, Transform transform, std::uint32_t most) {
  LineTask task;
  task.elements = matrix.elements();
  task.type = matrix.type;
  task.bits = static_cast<std::uint8_t>(bits);
  task.transform = transform;
  task.lines = matrix.lines();
  task.most = most;
  return task;
}

// Keeps the lines and restores them over bytes that were something else, and expects the lines that
// `kinds` names, the first `most` of the flat ones, and nothing else. Returns how many are flat.
std::uint32_t expect_lines(const Matrix& matrix, unsigned bits, Transform transform,
                           const Bytes& source, const std::vector<unsigned char>& payload,
                           const std::string& kinds, std::uint32_t most, const std::string& what) {
  LineTask task = line_task(matrix, bits, transform, most);
  Bytes codes(payload.size());
  std::memcpy(codes.data(), payload.data(), payload.size());
  Bytes section(cuda::line_section_bytes(task.lines, task.elements, task.type, most));
  Bytes scratch(cuda::line_scratch_bytes(task.lines, task.elements, task.type));
  EXPECT_EQ(section.size() % 64, 0u);
  Bytes target(source.size(), element_size(matrix.type));
  std::memset(target.data(), kUntouched, target.size());
  cuda::Verdict verdicts[2];
  task.source = source.data();
  task.codes = codes.data();
  task.section = section.data();
  task.scratch = scratch.data();
  task.target = target.data();
  task.verdict = &verdicts[0];
  LineTask back = task;
  back.verdict = &verdicts[1];
  Recorder recorder;
  std::size_t queued = 0;
  EXPECT_EQ(cuda::keep_lines_on_device(recorder, {&task, 1}, {}, &queued), LaunchStatus::kOk);
  EXPECT_EQ(queued, 1u);
  EXPECT_EQ(cuda::restore_lines_on_device(recorder, {&back, 1}, {}, &queued), LaunchStatus::kOk);
  const std::string name = name_of(matrix.type);
  std::vector<std::string> names{"pleat_keep_lines_" + name, "pleat_restore_lines_" + name};
  if (matrix.look == Look::kColumns) names.insert(names.begin(), "pleat_look_at_columns_" + name);
  for (const Recorder::Launch& launch : recorder.launches) {
    EXPECT_EQ(launch.kernel, names.at(static_cast<std::size_t>(&launch - &recorder.launches[0])));
    const cuda::LineJob job = line_job(launch);
    if (launch.kernel == "pleat_look_at_columns_" + name)
      emulate_look_at_columns(matrix.type, job, any_of);
    else if (launch.kernel == "pleat_keep_lines_" + name)
      emulate_keep_lines(matrix.type, job, any_of);
    else
      emulate_restore_lines(matrix.type, job, any_of);
  }
  const auto flat = static_cast<std::uint32_t>(std::count(kinds.begin(), kinds.end(), 'f'));
  EXPECT_EQ(verdicts[0].outcome, cuda::Outcome::kDone);
  EXPECT_EQ(verdicts[1].outcome, cuda::Outcome::kDone);
  EXPECT_EQ(verdicts[0].kept, flat) << what;
  EXPECT_EQ(verdicts[0].payload_bytes,
            cuda::line_section_bytes(task.lines, task.elements, task.type, flat));
  const std::size_t size = element_size(matrix.type);
  std::uint32_t left = most;
  for (std::size_t line = 0; line < matrix.line_count(); ++line) {
    const bool kept = kinds[line] == 'z' || (kinds[line] == 'f' && left != 0);
    left -= kinds[line] == 'f' && left != 0;
    for (std::size_t at = 0; at < matrix.line_length(); ++at) {
      const std::size_t e = matrix.element(line, at) * size;
      unsigned char expected[4];
      std::memset(expected, !kept ? kUntouched : 0, size);
      if (kept && kinds[line] != 'z') std::memcpy(expected, source.data() + e, size);
      if (std::memcmp(target.data() + e, expected, size) != 0) {
        ADD_FAILURE() << what << ": line " << line << " of kind '" << kinds[line] << "', element "
                      << at;
        return flat;
      }
    }
  }
  EXPECT_TRUE(target.guard_intact() && section.guard_intact() && scratch.guard_intact());
  return flat;
}

std::string describe(const Matrix& matrix, unsigned bits, std::uint32_t most) {
  return std::string(name_of(matrix.type)) + " " + std::to_string(bits) + " bits, " +
         std::to_string(matrix.rows) + " x " + std::to_string(matrix.length) + ", look " +
         std::to_string(static_cast<int>(matrix.look)) + ", most " + std::to_string(most);
}

TEST(CudaLines, TheLinesThatTheHostKeepsComeBackExactAndNoOthers) {
  std::uint32_t flat[4] = {}, zero = 0;
  for (const ElementType type : kFloatTypes)
    for (const Look look : {Look::kParts, Look::kRows, Look::kColumns})
      for (const std::size_t rows : {1u, 2u, 15u, 16u, 40u, 300u, 1100u})
        for (const std::uint32_t length : {2u, 15u, 16u, 17u, 31u, 96u, 255u, 257u, 300u, 512u}) {
          const Matrix matrix{type, rows, length, look};
          const unsigned bits = std::array{1u, 2u, 3u, 4u, 6u, 8u}[any_of(6)];
          const auto transform = bits == 8 ? Transform::kNone : Transform(any_of(3));
          // The host takes an infinite half for a number.
          const bool nonfinite = bits >= 3 && type != ElementType::kFloat16 && any_of(2) == 0;
          const Bytes source =
              copy_of(content_of(matrix, nonfinite), element_size(type) * any_of(3));
          const std::vector<unsigned char> payload =
              reference_payload(type, bits, matrix.elements(), source.data(), transform);
          if (payload.empty()) continue;  // too many groups that cannot be coded
          const std::string kinds = expected_lines(matrix, source, group_steps(payload.data()));
          if (!has_lines_to_keep(matrix.elements(), type, matrix.lines())) {
            EXPECT_EQ(kinds.find('f'), std::string::npos);
            continue;
          }
          const auto all = static_cast<std::uint32_t>(std::count(kinds.begin(), kinds.end(), 'f'));
          zero += static_cast<std::uint32_t>(std::count(kinds.begin(), kinds.end(), 'z'));
          for (const std::uint32_t most : std::set<std::uint32_t>{0, 1, all / 2, all, all + 7})
            flat[static_cast<int>(look)] += expect_lines(matrix, bits, transform, source, payload,
                                                         kinds, most, describe(matrix, bits, most));
        }
  EXPECT_EQ(flat[static_cast<int>(Look::kParts)], 0u);
  EXPECT_GT(flat[static_cast<int>(Look::kRows)], 1000u);
  EXPECT_GT(flat[static_cast<int>(Look::kColumns)], 1000u);
  EXPECT_GT(zero, 1000u);
}

// Every row is nearly constant, at one of two heights far apart.
TEST(CudaLines, AllRowsMayBeFlat) {
  for (const std::uint32_t length : {16u, 96u, 300u}) {
    const Matrix matrix{ElementType::kFloat32, 2000, length, Look::kRows};
    Bytes source(matrix.elements() * 4);
    for (std::size_t e = 0; e < matrix.elements(); ++e)
      source.as<float>()[e] = e / length % 2 == 0 ? 1000 + float(e % 7) : -1000 - float(e % 5);
    const auto payload =
        reference_payload(matrix.type, 4, matrix.elements(), source.data(), Transform::kNone);
    const std::string kinds = expected_lines(matrix, source, group_steps(payload.data()));
    for (const std::uint32_t most : {0u, 3u, 1999u, 2000u}) {
      const std::uint32_t flat = expect_lines(matrix, 4, Transform::kNone, source, payload, kinds,
                                              most, describe(matrix, 4, most));
      EXPECT_GT(flat, length == 300 ? 1000u : 1900u);
    }
  }
}

// Long columns, whose steps are summed chunk by chunk.
TEST(CudaLines, ColumnsOfManyChunksAreHeldAgainstTheirOwnSteps) {
  for (const std::uint32_t length : {3u, 64u, 100u, 300u}) {
    const Matrix matrix{ElementType::kFloat32, 200'000 / length, length, Look::kColumns};
    auto& random = random_source();
    std::normal_distribution<float> normal;
    Bytes source(matrix.elements() * 4);
    // The rows' deviations differ, so that a column's mean step is no group's; columns as flat as
    // four mean steps are on both sides of the bound.
    for (std::size_t r = 0; r < matrix.rows; ++r)
      for (std::size_t c = 0; c < length; ++c) {
        const float row = r % 1000 < 10 ? 30.0f : 1.0f;
        const float column = c % 3 == 0 ? 1.0f : 0.02f * float(c % 17);
        source.as<float>()[r * length + c] = column * normal(random) * (c % 3 == 0 ? row : 1.0f);
      }
    const auto payload =
        reference_payload(matrix.type, 4, matrix.elements(), source.data(), Transform::kNone);
    const std::string kinds = expected_lines(matrix, source, group_steps(payload.data()));
    const std::uint32_t flat = expect_lines(matrix, 4, Transform::kNone, source, payload, kinds,
                                            length, describe(matrix, 4, length));
    EXPECT_GT(flat, 0u);
    EXPECT_LT(flat, length);
  }
}

TEST(CudaLines, ASectionOfAnotherTaskOrADamagedOneIsRefused) {
  const Matrix matrix{ElementType::kBFloat16, 100, 96, Look::kRows};
  const Bytes source = content_of(matrix, false);
  const auto payload = reference_payload(matrix.type, 4, matrix.elements(), source.data());
  LineTask task = line_task(matrix, 4, Transform::kNone, 100);
  Bytes codes(payload.size()), target(source.size());
  std::memcpy(codes.data(), payload.data(), payload.size());
  Bytes section(cuda::line_section_bytes(task.lines, task.elements, task.type, task.most));
  cuda::Verdict verdict;
  cuda::LineJob job{};
  const auto prepare = [&](const LineTask& with, bool restores) {
    Recorder recorder;
    std::size_t queued = 0;
    EXPECT_EQ(restores ? cuda::restore_lines_on_device(recorder, {&with, 1}, {}, &queued)
                       : cuda::keep_lines_on_device(recorder, {&with, 1}, {}, &queued),
              LaunchStatus::kOk);
    job = line_job(recorder.launches.at(0));
  };
  task.source = source.data();
  task.codes = codes.data();
  task.section = section.data();
  task.target = target.data();
  task.verdict = &verdict;
  prepare(task, false);
  emulate_keep_lines(matrix.type, job, any_of);
  const std::uint32_t kept = verdict.kept;
  ASSERT_GT(kept, 0u);
  prepare(task, true);
  emulate_restore_lines(matrix.type, job, any_of);
  EXPECT_EQ(verdict.outcome, cuda::Outcome::kDone);
  const auto outcome_of = [&](const LineTask& other) {
    prepare(other, true);
    emulate_restore_lines(matrix.type, job, any_of);
    return verdict.outcome;
  };
  LineTask other = task;
  other.lines.length = 48;
  EXPECT_EQ(outcome_of(other), cuda::Outcome::kCorrupt);
  other = task;
  other.most = 99;
  EXPECT_EQ(outcome_of(other), cuda::Outcome::kCorrupt);
  auto& random = random_source();
  unsigned refused = 0;
  for (int round = 0; round < 300; ++round) {
    Bytes damaged = copy_of(section, 0);
    damaged.data()[random() % (64 + 128 + 4 * kept)] ^=
        static_cast<unsigned char>(1u << random() % 8);
    other = task;
    other.section = damaged.data();
    refused += outcome_of(other) == cuda::Outcome::kCorrupt;
    EXPECT_TRUE(target.guard_intact());
  }
  EXPECT_GT(refused, 30u);
}

TEST(CudaLines, TasksOfOneTypeShareALaunchAndOnlyColumnsNeedTwo) {
  std::vector<LineTask> tasks;
  for (int t = 0; t < 60; ++t)
    tasks.push_back(line_task({ElementType::kFloat32, 40u + unsigned(t), 96, Look::kRows}, 4,
                              Transform::kNone, 2));
  tasks[10].lines = {Look::kColumns, 96};
  tasks.push_back(line_task({ElementType::kFloat16, 400, 96, Look::kRows}, 4, Transform::kNone, 2));
  Recorder recorder;
  std::size_t queued = 0;
  ASSERT_EQ(cuda::keep_lines_on_device(recorder, tasks, {7}, &queued), LaunchStatus::kOk);
  EXPECT_EQ(queued, tasks.size());
  std::vector<std::string> kernels;
  for (const Recorder::Launch& launch : recorder.launches) kernels.push_back(launch.kernel);
  EXPECT_EQ(kernels,
            (std::vector<std::string>{"pleat_look_at_columns_float32", "pleat_keep_lines_float32",
                                      "pleat_keep_lines_float32", "pleat_keep_lines_float16"}));
  EXPECT_EQ(recorder.launches[0].batch.jobs, 1u);
  EXPECT_EQ(recorder.launches[1].batch.jobs, cuda::kMostLineJobs);
  EXPECT_EQ(recorder.launches[2].batch.jobs, 60 - cuda::kMostLineJobs);
  std::uint32_t tile = 0;
  for (unsigned j = 0; j < cuda::kMostLineJobs; ++j) {
    EXPECT_EQ(line_job(recorder.launches[1], j).first_tile, tile);
    tile += j == 10 ? 1 : (40 + j + 255) / 256;
  }
  EXPECT_EQ(recorder.launches[1].batch.tiles, tile);
  EXPECT_EQ(recorder.launches[1].most_blocks, tile);
  EXPECT_EQ(recorder.launches[1].stream, 7u);
  recorder.fail_at = recorder.launches.size() + 1;
  EXPECT_EQ(cuda::restore_lines_on_device(recorder, tasks, {}, &queued), LaunchStatus::kFailed);
  EXPECT_EQ(queued, cuda::kMostLineJobs);
}

// ---- near zero ----

TEST(CudaNearZero, ElementsAboveMinusOneComeBackBitForBitAndNoOthers) {
  auto& random = random_source();
  const double odd[] = {0.0, -0.0, 1.0, -1.0, INFINITY, -INFINITY, NAN, -0.999, -1.01, 60000.0};
  for (const ElementType type : kFloatTypes)
    for (const std::size_t elements : {1u, 7u, 8u, 9u, 255u, 257u, 8192u, 30'001u})
      for (const unsigned one_in : {1u, 3u, 1000u}) {
        Bytes source(elements * element_size(type), element_size(type) * any_of(3));
        std::set<std::size_t> near;
        for (std::size_t e = 0; e < elements; ++e) {
          const bool is_odd = random() % one_in == 0;
          set_value(type, source.data(), e,
                    is_odd ? odd[random() % std::size(odd)] : -2 - double(random() % 100));
          if (!(value_at(type, source.data(), e) <= -1)) near.insert(e);
        }
        const auto all = static_cast<std::uint32_t>(near.size());
        for (const std::uint32_t most : std::set<std::uint32_t>{0, 1, all / 2, all, all + 100}) {
          Bytes section(cuda::near_zero_section_bytes(type, most));
          EXPECT_EQ(section.size() % 64, 0u);
          Bytes target(source.size(), element_size(type));
          std::memset(target.data(), kUntouched, target.size());
          cuda::Verdict verdicts[2];
          NearZeroTask task{source.data(), target.data(), section.data(), elements,
                            type,          most,          &verdicts[0],   nullptr};
          NearZeroTask back = task;
          back.verdict = &verdicts[1];
          Recorder recorder;
          std::size_t queued = 0;
          ASSERT_EQ(cuda::keep_near_zero_on_device(recorder, {&task, 1}, {}, &queued),
                    LaunchStatus::kOk);
          ASSERT_EQ(cuda::restore_near_zero_on_device(recorder, {&back, 1}, {}, &queued),
                    LaunchStatus::kOk);
          ASSERT_EQ(recorder.launches.size(), 2u);
          EXPECT_EQ(recorder.launches[0].kernel,
                    std::string("pleat_keep_near_zero_") + name_of(type));
          EXPECT_EQ(recorder.launches[1].kernel,
                    std::string("pleat_restore_near_zero_") + name_of(type));
          emulate_keep_near_zero(type, recorder.launches[0].batch.job[0], any_of);
          emulate_restore_near_zero(type, recorder.launches[1].batch.job[0], any_of);
          EXPECT_EQ(verdicts[0].outcome, cuda::Outcome::kDone);
          EXPECT_EQ(verdicts[1].outcome, cuda::Outcome::kDone);
          EXPECT_EQ(verdicts[0].kept, all);
          EXPECT_EQ(verdicts[0].payload_bytes, cuda::near_zero_section_bytes(type, all));
          std::uint32_t left = most;
          for (std::size_t e = 0; e < elements; ++e) {
            const std::size_t size = element_size(type);
            unsigned char expected[4];
            std::memset(expected, kUntouched, size);
            if (near.contains(e) && left != 0) {
              --left;
              std::memcpy(expected, source.data() + e * size, size);
            }
            ASSERT_EQ(std::memcmp(target.data() + e * size, expected, size), 0)
                << name_of(type) << ", element " << e << " of " << elements << ", most " << most;
          }
          EXPECT_TRUE(target.guard_intact() && section.guard_intact());
        }
      }
}

TEST(CudaNearZero, ADamagedSectionWritesNothingOutside) {
  auto& random = random_source();
  constexpr std::size_t kElements = 1000;
  for (const ElementType type : kFloatTypes) {
    Bytes source(kElements * element_size(type)), target(source.size());
    for (std::size_t e = 0; e < kElements; ++e)
      set_value(type, source.data(), e, e % 10 == 0 ? -0.5 : -5);
    Bytes section(cuda::near_zero_section_bytes(type, 120));
    cuda::Verdict verdict;
    cuda::Job keep{};
    keep.source = source.data();
    keep.target = section.data();
    keep.verdict = &verdict;
    keep.elements = kElements;
    keep.width = 120;
    emulate_keep_near_zero(type, keep, any_of);
    ASSERT_EQ(verdict.kept, 100u);
    unsigned refused = 0;
    for (int round = 0; round < 300; ++round) {
      Bytes damaged = copy_of(section, 0);
      damaged.data()[random() % (64 + 8 * 100)] ^= static_cast<unsigned char>(1u << random() % 8);
      cuda::Job back{};
      back.source = damaged.data();
      back.target = target.data();
      back.verdict = &verdict;
      back.elements = 120;
      back.capacity = kElements;
      back.width = 120;
      emulate_restore_near_zero(type, back, any_of);
      refused += verdict.outcome == cuda::Outcome::kCorrupt;
      EXPECT_TRUE(target.guard_intact());
    }
    EXPECT_GT(refused, 100u);
  }
}

// ---- sides beside values ----

constexpr Sides kAsked[] = {{Sides::Kind::kOpen, false, 0, INFINITY},
                            {Sides::Kind::kClosed, false, -INFINITY, 0.25f},
                            {Sides::Kind::kOpen, false, -0.5f, 1},
                            {Sides::Kind::kThree, false, 0, 0}};

TEST(CudaMoveToSides, ElementsGetBackToTheirSideAsOnTheHost) {
  for (const ElementType type : kFloatTypes)
    for (const Sides& asked : kAsked)
      for (const std::size_t elements : {1u, 5u, 8u, 12u, 255u, 20'003u})
        for (const std::size_t shift : {std::size_t{0}, element_size(type)}) {
          const Bytes source = mixed(type, elements, 3);
          const Sides sides = sides_beside_values(asked, type);
          ASSERT_TRUE(sides.any());
          cuda::DeviceTask task = task_of(type, 0, elements);
          task.sides = sides;
          task.source = source.data();
          task.nonce = 99;
          Bytes payload(cuda::device_payload_bound(task));
          task.target = payload.data();
          cuda::Verdict verdicts[2];
          task.verdict = &verdicts[0];
          // Elements as noise may have left them: anywhere near a bound, NaN too.
          Bytes host = copy_of(mixed(type, elements, 3), 0);
          for (std::size_t e = 0; e < elements; ++e)
            if (any_of(3) == 0)
              set_value(type, host.data(), e, any_of(50) == 0 ? NAN : double(any_of(9)) / 4 - 1);
          Bytes device = copy_of(host, shift);
          cuda::DeviceTask back = task;
          back.source = payload.data();
          back.target = device.data();
          back.capacity = payload.size();
          back.verdict = &verdicts[1];
          Recorder recorder;
          std::size_t queued = 0;
          ASSERT_EQ(cuda::encode_on_device(recorder, {&task, 1}, {}, &queued), LaunchStatus::kOk);
          ASSERT_EQ(cuda::move_to_sides_on_device(recorder, {&back, 1}, {}, &queued),
                    LaunchStatus::kOk);
          EXPECT_EQ(recorder.launches.at(1).kernel,
                    std::string("pleat_move_to_sides_") + name_of(type));
          emulate_encode_sides(type, recorder.launches[0].batch.job[0]);
          emulate_move_to_sides(type, recorder.launches[1].batch.job[0]);
          ASSERT_EQ(restore_sides(payload.data(), payload.size(), host.data(), host.size(),
                                  serial_executor()),
                    Status::kOk);
          EXPECT_EQ(verdicts[1].outcome, cuda::Outcome::kDone);
          EXPECT_EQ(std::memcmp(host.data(), device.data(), host.size()), 0);
          EXPECT_TRUE(device.guard_intact());
        }
}

TEST(CudaMoveToSides, DamageIsSeenAsOnTheHost) {
  auto& random = random_source();
  const std::size_t elements = 1003;
  for (const ElementType type : kFloatTypes) {
    const Bytes source = mixed(type, elements, 3);
    for (const Sides& asked : kAsked) {
      const Sides sides = sides_beside_values(asked, type);
      const CodecSpec spec{.sides = sides};
      Bytes payload(payload_bound(spec, type, elements));
      ASSERT_EQ(encode({source.data(), elements, type}, spec, 1, payload.data(), payload.size(),
                       serial_executor(), nullptr)
                    .status,
                Status::kOk);
      unsigned refused = 0;
      for (int round = 0; round < 300; ++round) {
        Bytes damaged = copy_of(payload, 0);
        const std::size_t within = round % 4 != 0 ? kHeaderBytes : payload.size();
        damaged.data()[random() % within] ^= static_cast<unsigned char>(1u << random() % 8);
        Bytes host = copy_of(source, 0), device = copy_of(source, 0);
        cuda::Verdict verdict;
        cuda::Job job{};
        job.source = damaged.data();
        job.target = device.data();
        job.verdict = &verdict;
        job.elements = elements;
        job.capacity = payload.size();
        job.width = sides.kind == Sides::Kind::kThree ? 2 : 1;
        emulate_move_to_sides(type, job);
        const Status status = restore_sides(damaged.data(), damaged.size(), host.data(),
                                            host.size(), serial_executor());
        EXPECT_EQ(verdict.outcome == cuda::Outcome::kDone, status == Status::kOk);
        EXPECT_TRUE(status != Status::kOk ||
                    std::memcmp(device.data(), host.data(), host.size()) == 0);
        EXPECT_TRUE(device.guard_intact());
        refused += status == Status::kOk ? 0 : 1;
      }
      EXPECT_GT(refused, 50u);
    }
  }
}

}  // namespace
}  // namespace pleat::compress::test
