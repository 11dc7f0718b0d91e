#include "tests/simulated_cuda/kernel_twins.h"

#include <cstring>
#include <map>
#include <memory>
#include <optional>

#include "compress/cuda/jobs.h"
#include "compress/cuda/lines_core.h"
#include "compress/cuda/measure_core.h"
#include "compress/cuda/near_zero_core.h"
#include "compress/format.h"
#include "compress/types.h"
#include "tests/compress/emulated_asides.h"
#include "tests/compress/emulated_frames.h"
#include "tests/compress/emulated_kernels.h"
#include "tests/simulated_cuda/memory.h"

namespace pleat::simulated {

using compress::ElementType;
using compress::Transform;
using compress::cuda::Batch;
using compress::cuda::Job;
using compress::cuda::LineBatch;
using compress::cuda::LineJob;
using compress::cuda::Outcome;
using compress::cuda::Verdict;

enum class Verb {
  kEncode,
  kDecode,
  kSurvey,
  kEncodeInPlace,
  kMoveTo,  // sides
  kLookAtColumns,
  kKeepLines,
  kRestoreLines,
  kMeasure,
  kKeepNearZero,
  kRestoreNearZero,
};
enum class Coding { kPlain, kTransformed, kScaled, kFramed, kSides };

struct Twin {
  Verb verb;
  Coding coding;
  ElementType type;
  unsigned bits = 0;
};

namespace {

// Cuts the first of `words` that `text` begins with off.
template <class Value>
std::optional<Value> take(std::string* text,
                          std::initializer_list<std::pair<const char*, Value>> words) {
  for (const auto& [word, value] : words)
    if (text->starts_with(word)) {
      text->erase(0, std::string(word).size());
      return value;
    }
  return std::nullopt;
}

std::optional<Twin> parse(std::string name) {
  const auto verb = take<Verb>(&name, {{"pleat_encode_in_place_", Verb::kEncodeInPlace},
                                       {"pleat_encode_", Verb::kEncode},
                                       {"pleat_decode_", Verb::kDecode},
                                       {"pleat_survey_", Verb::kSurvey},
                                       {"pleat_move_to_", Verb::kMoveTo},
                                       {"pleat_look_at_columns_", Verb::kLookAtColumns},
                                       {"pleat_keep_lines_", Verb::kKeepLines},
                                       {"pleat_restore_lines_", Verb::kRestoreLines},
                                       {"pleat_measure_", Verb::kMeasure},
                                       {"pleat_keep_near_zero_", Verb::kKeepNearZero},
                                       {"pleat_restore_near_zero_", Verb::kRestoreNearZero}});
  if (!verb) return std::nullopt;
  const auto coding = take<Coding>(&name, {{"transformed_", Coding::kTransformed},
                                           {"scaled_", Coding::kScaled},
                                           {"framed_", Coding::kFramed},
                                           {"sides_", Coding::kSides},
                                           {"", Coding::kPlain}});
  const auto type = take<ElementType>(&name, {{"float32", ElementType::kFloat32},
                                              {"bfloat16", ElementType::kBFloat16},
                                              {"float16", ElementType::kFloat16},
                                              {"bool", ElementType::kBool},
                                              {"int64", ElementType::kInt64},
                                              {"int32", ElementType::kInt32}});
  if (!type) return std::nullopt;
  Twin twin{*verb, *coding, *type, 0};
  if (name.size() == 2 && name[0] == '_' && name[1] >= '0' && name[1] <= '8')
    twin.bits = static_cast<unsigned>(name[1] - '0');
  else if (!name.empty())
    return std::nullopt;
  return twin;
}

unsigned number(ElementType type) {
  return type == ElementType::kBool ? 3 : type == ElementType::kInt64 ? 4 : 5;
}

compress::test::Kernel form_of(const Twin& twin) {
  return {twin.type, twin.bits,
          twin.coding == Coding::kScaled        ? Transform::kHadamardScaled
          : twin.coding == Coding::kTransformed ? Transform::kHadamard
                                                : Transform::kNone};
}

// Blocks take their turns one after the other.
auto in_turn() {
  return [turn = 0u](unsigned blocks) mutable { return turn++ % blocks; };
}
constexpr unsigned kBlocks = 3;

void run_job(const Twin& twin, const Job& job) {
  namespace test = compress::test;
  const bool encodes = twin.verb == Verb::kEncode;
  if (twin.verb == Verb::kMoveTo) return test::emulate_move_to_sides(twin.type, job);
  if (twin.verb == Verb::kKeepNearZero)
    return test::emulate_keep_near_zero(twin.type, job, in_turn());
  if (twin.verb == Verb::kRestoreNearZero)
    return test::emulate_restore_near_zero(twin.type, job, in_turn());
  if (twin.verb == Verb::kSurvey) return test::emulate_survey(twin.type, job);
  if (twin.verb == Verb::kEncodeInPlace) {
    test::InPlaceTurns turns;
    if (!test::emulate_in_place(form_of(twin), job, kBlocks, in_turn(), &turns))
      give_up("blocks wait for each other", "encode in place");
    return;
  }
  if (twin.coding == Coding::kSides)
    return encodes ? test::emulate_encode_sides(twin.type, job)
                   : test::emulate_decode_sides(twin.type, job);
  if (!compress::is_floating(twin.type))
    return encodes ? test::emulate_pack(job, number(twin.type))
                   : test::emulate_unpack(job, number(twin.type));
  encodes ? test::emulate_encode(form_of(twin), job) : test::emulate_decode(form_of(twin), job);
}

void run_batch(const Twin& twin, const Batch& batch) {
  if (twin.coding != Coding::kFramed) {
    for (unsigned j = 0; j < batch.jobs; ++j) run_job(twin, batch.job[j]);
    return;
  }
  compress::test::FrameTurns turns;
  if (!compress::test::emulate_frame_launch(twin.type, twin.verb == Verb::kEncode, batch, kBlocks,
                                            in_turn(), &turns))
    give_up("blocks wait for each other", "frames");
}

std::size_t bytes_of_payload(const Twin& twin, const Job& job) {
  if (twin.type == ElementType::kBool) return 64 + (job.elements + 7) / 8;
  if (!compress::is_floating(twin.type)) return 64 + (job.elements * job.width + 7) / 8;
  return job.capacity;
}

bool is_of_lines(const Twin& twin) {
  return twin.verb == Verb::kLookAtColumns || twin.verb == Verb::kKeepLines ||
         twin.verb == Verb::kRestoreLines || twin.verb == Verb::kMeasure;
}

// A launch for lines, as Launch below.
struct LineLaunch {
  Twin twin;
  LineBatch batch;  // the device's
  Verdict verdict[compress::cuda::kMostLineJobs];
  compress::cuda::DeviceStatistics statistics[compress::cuda::kMostLineJobs];

  void run() {
    namespace test = compress::test;
    for (unsigned j = 0; j < batch.jobs; ++j) {
      LineJob job = batch.job[j];
      job.source = alias(job.source);
      job.codes = alias(job.codes);
      job.section = alias(job.section);
      job.scratch = alias(job.scratch);
      job.counters = static_cast<compress::cuda::Counters*>(alias(job.counters));
      verdict[j] = {};
      job.verdict = &verdict[j];
      if (twin.verb == Verb::kLookAtColumns)
        test::emulate_look_at_columns(twin.type, job, in_turn());
      else if (twin.verb == Verb::kKeepLines)
        test::emulate_keep_lines(twin.type, job, in_turn());
      else if (twin.verb == Verb::kMeasure)
        measure(job, &statistics[j]);
      else
        test::emulate_restore_lines(twin.type, job, in_turn());
    }
  }
  void publish(std::uint64_t due) {
    if (twin.verb == Verb::kLookAtColumns) return;
    for (unsigned j = 0; j < batch.jobs; ++j) {
      if (twin.verb == Verb::kMeasure)
        write_bytes(batch.job[j].section, &statistics[j], sizeof statistics[j], due);
      write_bytes(batch.job[j].verdict, &verdict[j], sizeof verdict[j], due);
    }
  }

 private:
  // Statistics may lie in the host's memory, as verdicts do.
  void measure(LineJob job, compress::cuda::DeviceStatistics* to) const {
    job.section = to;
    compress::test::emulate_measure(twin.type, job, in_turn());
  }
};

void add_accesses(const Twin& twin, const LineJob& job, std::vector<Access>* accesses) {
  namespace cuda = compress::cuda;
  const compress::LineShape shape(job.elements, job.length, job.most,
                                  static_cast<compress::Look>(job.look),
                                  static_cast<unsigned>(compress::element_size(twin.type)));
  const std::size_t plain = job.elements * compress::element_size(twin.type);
  const std::size_t section = shape.section_bytes();
  if (twin.verb == Verb::kRestoreLines) {
    accesses->push_back({job.section, section, false});
    accesses->push_back({job.target, plain, true});
  } else {
    const compress::GroupedLayout layout(twin.type, job.bits, job.elements, job.transformed != 0);
    accesses->push_back({job.source, plain, false});
    accesses->push_back({job.codes, layout.codes_offset, false});
    const bool measures = twin.verb == Verb::kMeasure;
    if (measures || shape.columns)
      accesses->push_back({job.scratch,
                           measures ? cuda::tiles_of(job.elements) * sizeof(compress::Measured)
                                    : shape.scratch_bytes(),
                           true});
    if (measures) accesses->push_back({job.section, sizeof(cuda::DeviceStatistics), true});
    // Scaled groups are measured by their codes, too.
    if (measures && job.scaled != 0) accesses->push_back({job.codes, layout.end_of_codes(), false});
    if (twin.verb == Verb::kKeepLines) accesses->push_back({job.section, section, true});
  }
  if (twin.verb != Verb::kLookAtColumns) accesses->push_back({job.verdict, sizeof(Verdict), true});
  accesses->push_back({job.counters, sizeof(cuda::Counters), true});
}

// The launch as the twin sees it: addresses that the host can use, verdicts of its own.
struct Launch {
  Twin twin;
  Batch batch;  // the device's
  Verdict verdict[compress::cuda::kMostJobs];

  void run(std::vector<Access>* accesses) {
    Batch mine = batch;
    for (unsigned j = 0; j < batch.jobs; ++j) {
      Job& job = mine.job[j];
      job.source = alias(job.source);
      job.target = alias(job.target);
      job.counters = static_cast<compress::cuda::Counters*>(alias(job.counters));
      if (twin.verb == Verb::kSurvey || twin.verb == Verb::kEncodeInPlace)
        job.scratch = alias(job.scratch);
      verdict[j] = {};
      job.verdict = &verdict[j];
    }
    run_batch(twin, mine);
    if (twin.verb != Verb::kEncode) return;
    for (unsigned j = 0; j < batch.jobs; ++j)
      if (verdict[j].outcome == Outcome::kDone)
        accesses->push_back({batch.job[j].target, verdict[j].payload_bytes, true});
  }
  void publish(std::uint64_t due) {
    if (twin.verb == Verb::kSurvey) return;
    for (unsigned j = 0; j < batch.jobs; ++j)
      write_bytes(batch.job[j].verdict, &verdict[j], sizeof verdict[j], due);
  }
};

}  // namespace

const Twin* find_twin(const std::string& name) {
  static auto* const twins = new std::map<std::string, std::optional<Twin>>;
  const auto [at, is_new] = twins->try_emplace(name);
  if (is_new) at->second = parse(name);
  return at->second ? &*at->second : nullptr;
}

// Pinned memory and the like is no device's.
void keep_devices(std::vector<Access>* accesses) {
  std::erase_if(*accesses, [](const Access& access) { return !is_followed(access.address); });
}

Operation operation_of_lines(const Twin& twin, const std::string& name, const void* parameter) {
  const auto launch = std::make_shared<LineLaunch>();
  launch->twin = twin;
  std::memcpy(&launch->batch, parameter, sizeof launch->batch);
  Operation operation{name, {}, {}, {}};
  for (unsigned j = 0; j < launch->batch.jobs; ++j)
    add_accesses(twin, launch->batch.job[j], &operation.accesses);
  keep_devices(&operation.accesses);
  operation.prepare = [launch](std::vector<Access>*) { launch->run(); };
  operation.run = [launch](std::uint64_t due) { launch->publish(due); };
  return operation;
}

Operation operation_of(const Twin& twin, const std::string& name, const void* parameter) {
  if (is_of_lines(twin)) return operation_of_lines(twin, name, parameter);
  const auto launch = std::make_shared<Launch>();
  launch->twin = twin;
  launch->batch = *static_cast<const Batch*>(parameter);
  Operation operation{name, {}, {}, {}};
  for (unsigned j = 0; j < launch->batch.jobs; ++j) {
    const Job& job = launch->batch.job[j];
    const std::size_t plain = job.elements * compress::element_size(twin.type);
    const std::size_t near_zero = compress::near_zero_bytes_on_device(
        job.width, static_cast<unsigned>(compress::element_size(twin.type)));
    switch (twin.verb) {
      case Verb::kDecode:
      case Verb::kMoveTo:
        operation.accesses.push_back({job.source, bytes_of_payload(twin, job), false});
        operation.accesses.push_back({job.target, plain, true});
        break;
      case Verb::kKeepNearZero:
        operation.accesses.push_back({job.source, plain, false});
        operation.accesses.push_back({job.target, near_zero, true});
        break;
      case Verb::kRestoreNearZero:
        operation.accesses.push_back({job.source, near_zero, false});
        operation.accesses.push_back(
            {job.target, job.capacity * compress::element_size(twin.type), true});
        break;
      default:
        operation.accesses.push_back({job.source, plain, twin.verb == Verb::kEncodeInPlace});
        if (twin.verb != Verb::kSurvey) operation.accesses.push_back({job.target, 64, true});
    }
    if (twin.verb != Verb::kSurvey)
      operation.accesses.push_back({job.verdict, sizeof(Verdict), true});
    operation.accesses.push_back({job.counters, sizeof(compress::cuda::Counters), true});
  }
  keep_devices(&operation.accesses);
  operation.prepare = [launch](std::vector<Access>* accesses) { launch->run(accesses); };
  operation.run = [launch](std::uint64_t due) { launch->publish(due); };
  return operation;
}

}  // namespace pleat::simulated
