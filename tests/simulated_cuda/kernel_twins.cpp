#include "tests/simulated_cuda/kernel_twins.h"

#include <cstring>
#include <map>
#include <memory>
#include <optional>

#include "compress/cuda/device_sketch.h"
#include "compress/cuda/mix_core.h"
#include "compress/device/jobs.h"
#include "compress/format.h"
#include "compress/framed/frame_chain.h"
#include "compress/lines/lines_core.h"
#include "compress/near_zero/near_zero_core.h"
#include "compress/types.h"
#include "tests/compress/emulated_launch.h"
#include "tests/simulated_cuda/memory.h"

namespace pleat::simulated {

using compress::ElementType;
using compress::cuda::Batch;
using compress::cuda::Job;
using compress::cuda::LineBatch;
using compress::cuda::LineJob;
using compress::cuda::Outcome;
using compress::cuda::Verdict;
using compress::test::Verb;

struct Twin : compress::test::NamedKernel {};

namespace {

std::size_t bytes_of_payload(const Twin& twin, const Job& job) {
  if (twin.type == ElementType::kBool) return 64 + (job.elements + 7) / 8;
  if (!compress::is_floating(twin.type)) return 64 + (job.elements * job.width + 7) / 8;
  return job.capacity;
}

// A launch with line jobs and similar jobs, like Launch below.
struct LineLaunch {
  Twin twin;
  LineBatch batch;  // the device's
  Verdict verdict[compress::cuda::kMostLineJobs];

  void run() {
    LineBatch mine = batch;
    for (unsigned j = 0; j < batch.jobs; ++j) {
      LineJob& job = mine.job[j];
      job.source = alias(job.source);
      job.codes = alias(job.codes);
      job.section = alias(job.section);
      if (!twin.is_of_mix()) job.scratch = alias(job.scratch);
      if (job.row != 0) job.parts = static_cast<const std::int8_t*>(alias(job.parts));
      job.counters = static_cast<compress::cuda::Counters*>(alias(job.counters));
      verdict[j] = {};
      job.verdict = &verdict[j];
    }
    compress::test::emulate_launch(twin, mine);
  }
  void publish(std::uint64_t due) {
    if (twin.verb == Verb::kLookAtColumns) return;
    for (unsigned j = 0; j < batch.jobs; ++j)
      write_bytes(batch.job[j].verdict, &verdict[j], sizeof verdict[j], due);
  }
};

void add_accesses_of_mix(const Twin& twin, const LineJob& job, std::vector<Access>* accesses) {
  const compress::GroupedLayout layout(twin.type, job.bits, job.elements, job.transformed != 0);
  const std::size_t item = compress::element_size(twin.type), plain = job.elements * item;
  const std::size_t coded = compress::coded_bytes(job.elements, static_cast<unsigned>(item));
  const bool mixes = twin.verb == Verb::kMix;
  accesses->push_back({job.codes, layout.codes_offset, false});
  const compress::Exponents exponents{job.row, job.channels, job.inner};
  if (!mixes && exponents.any())
    accesses->push_back({job.parts, compress::exponent_bytes(exponents, job.elements), false});
  accesses->push_back({job.section, mixes ? coded + plain : plain, !mixes});
  accesses->push_back({job.target, plain, mixes});
  accesses->push_back({job.verdict, sizeof(Verdict), true});
  accesses->push_back({job.counters, sizeof(compress::cuda::Counters), true});
}

void add_accesses(const Twin& twin, const LineJob& job, std::vector<Access>* accesses) {
  namespace cuda = compress::cuda;
  if (twin.is_of_mix()) return add_accesses_of_mix(twin, job, accesses);
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
    if (shape.columns) accesses->push_back({job.scratch, shape.scratch_bytes(), true});
    if (twin.verb == Verb::kKeepLines) accesses->push_back({job.section, section, true});
  }
  if (twin.verb != Verb::kLookAtColumns) accesses->push_back({job.verdict, sizeof(Verdict), true});
  accesses->push_back({job.counters, sizeof(cuda::Counters), true});
}

bool has_verdict(const Twin& twin) {
  return twin.verb != Verb::kSurvey && twin.verb != Verb::kSketch &&
         twin.verb != Verb::kMeasureParts;
}

// The launch for the twin: addresses that the host can use, and verdicts of its own.
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
      if (job.table != nullptr) job.table = static_cast<const std::int8_t*>(alias(job.table));
      job.counters = static_cast<compress::cuda::Counters*>(alias(job.counters));
      if (twin.verb == Verb::kSurvey || twin.verb == Verb::kEncodeInPlace)
        job.scratch = alias(job.scratch);
      verdict[j] = {};
      job.verdict = &verdict[j];
    }
    if (!compress::test::emulate_launch(twin, mine))
      give_up("blocks wait for each other", "a kernel");
    if (twin.verb != Verb::kEncode) return;
    for (unsigned j = 0; j < batch.jobs; ++j)
      if (verdict[j].outcome == Outcome::kDone)
        accesses->push_back({batch.job[j].target, verdict[j].payload_bytes, true});
  }
  void publish(std::uint64_t due) {
    if (!has_verdict(twin)) return;
    for (unsigned j = 0; j < batch.jobs; ++j)
      write_bytes(batch.job[j].verdict, &verdict[j], sizeof verdict[j], due);
  }
};

}  // namespace

const Twin* find_twin(const std::string& name) {
  static auto* const twins = new std::map<std::string, std::optional<Twin>>;
  const auto [at, is_new] = twins->try_emplace(name);
  if (const auto kernel = is_new ? compress::test::kernel_named(name) : std::nullopt)
    at->second = Twin{*kernel};
  return at->second ? &*at->second : nullptr;
}

// Removes pinned and other host memory.
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
  if (twin.is_of_lines()) return operation_of_lines(twin, name, parameter);
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
      case Verb::kSketch:
        operation.accesses.push_back({job.source, plain, false});
        operation.accesses.push_back(
            {job.target,
             compress::sketch_parts(job.elements) * compress::kSketchPart * sizeof(double), true});
        continue;  // no counters
      case Verb::kMeasureParts:
        operation.accesses.push_back({job.source, plain, false});
        operation.accesses.push_back(
            {job.target, compress::all_parts(job.exponents(), job.elements), true});
        continue;
      default:
        operation.accesses.push_back({job.source, plain, twin.verb == Verb::kEncodeInPlace});
        if (twin.verb != Verb::kSurvey) operation.accesses.push_back({job.target, 64, true});
    }
    if (has_verdict(twin)) operation.accesses.push_back({job.verdict, sizeof(Verdict), true});
    const std::size_t counters = twin.coding == compress::test::Coding::kFramed
                                     ? compress::frame_scratch_bytes(job.elements)
                                     : sizeof(compress::cuda::Counters);
    operation.accesses.push_back({job.counters, counters, true});
  }
  keep_devices(&operation.accesses);
  operation.prepare = [launch](std::vector<Access>* accesses) { launch->run(accesses); };
  operation.run = [launch](std::uint64_t due) { launch->publish(due); };
  return operation;
}

}  // namespace pleat::simulated
