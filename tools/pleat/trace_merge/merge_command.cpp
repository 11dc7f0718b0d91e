// `pleat trace merge`: the traces of a job's ranks, side by side on one time base.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <new>
#include <set>
#include <string>
#include <vector>

#include "gather.h"
#include "interpose/trace/wrapping.h"
#include "tools/pleat/commands.h"
#include "tools/pleat/program.h"
#include "tools/pleat/trace_command/options.h"
#include "tools/pleat/trace_export/formats.h"
#include "tools/pleat/trace_export/perfetto_writer.h"
#include "torch_bridge/core/option_text.h"

namespace pleat::cli {
namespace {

constexpr const char* kExamples =
    R"text(Puts the traces of a job's ranks on one time base: prints the peak of each rank, when it was and what
most of it was for, its growth; how far the ranks are apart; and when the ranks of a host held most
together. With -o it writes one timeline of all ranks, each a process, for ui.perfetto.dev.

A folder stands for its files that end with .trace. The parts of a trace of bounded size, FILE.1 and
FILE, are one process; its growth and compression are those of the last part. Seconds count from the beginning of the first
trace. Ranks of one host share its monotonic clock; hosts are put together by their wall clocks.
--op, --class, --step and --min-size leave out slices of the timeline, --since and --until also bound
where peaks are looked for.

Other processes of a rank, like those that load its data, are listed below it.

Exit code: 0; 2, a rank is missing (--allow-missing goes on) or there twice, no trace, or an output
that cannot be written.

Examples:
  pleat trace merge run.rank*.trace
  pleat trace merge traces/ --json
  pleat trace merge -o job.pftrace traces/
  pleat trace merge -o job.pftrace --allow-missing --since 10 --until 20 run.rank0.trace run.rank3.trace)text";

struct TraceMergeRequest : TraceSelection {  // without `file`
  std::vector<std::string> files;            // and folders
  std::string output;                        // a timeline for Perfetto; "-": stdout; empty: none
  bool force = false;
  bool as_json = false;
  bool allow_missing = false;
  bool names_size = false;  // --min-size was given
};

std::optional<Job> open_job(const TraceMergeRequest& request) {
  std::string error;
  const std::vector<std::string> paths = trace_files(request.files, error);
  std::vector<TracePart> files;
  for (const std::string& path : paths) {
    std::unique_ptr<trace::File> file = open_trace(path);
    if (file == nullptr) return std::nullopt;
    files.push_back({path, std::move(file)});
  }
  Job job;
  if (error.empty()) job = job_of(std::move(files), error);
  if (error.empty() && !job.missing.empty() && !request.allow_missing)
    error = fmt::format("of {} ranks these are missing: {}; --allow-missing goes on without them",
                        job.world_size, job.missing);
  if (error.empty()) return job;
  trouble(error);
  return std::nullopt;
}

// By the time of each trace. --since and --until count from the job's beginning.
std::vector<trace::Filter> filters_of(const Job& job, const TraceMergeRequest& request) {
  std::vector<trace::Filter> filters;
  for (const RankFile& rank : job.ranks) {
    trace::Filter filter = request.filter;
    const auto moment = [&](double seconds) {
      const auto passed = static_cast<std::int64_t>(seconds * 1e9);
      const auto begins = static_cast<std::int64_t>(rank.start_ns() - job.start_ns);
      // Not before its own beginning.
      return rank.own_start_ns() + static_cast<std::uint64_t>(std::max<std::int64_t>(
                                       trace::wrapping_subtract(passed, begins), 0));
    };
    if (request.since_seconds > 0) filter.since_ns = moment(request.since_seconds);
    if (request.until_seconds) filter.until_ns = moment(*request.until_seconds);
    filters.push_back(std::move(filter));
  }
  return filters;
}

// Perfetto takes processes of one number for one.
std::uint64_t free_pid(std::uint64_t wanted, std::set<std::uint64_t>& taken) {
  constexpr std::uint64_t kMask = 0x7fffffff;
  wanted &= kMask;
  while (!taken.insert(wanted).second) wanted = (wanted + 1) & kMask;
  return wanted;
}

// The timeline of all ranks, one after the other.
class Timeline {
 public:
  Timeline(const TraceMergeRequest& request, const Job& job, TraceOutput& out)
      : job_(job), out_(out) {
    static_cast<TraceSelection&>(request_) = request;
    request_.format = ExportFormat::kPerfetto;
    request_.names_size = request.names_size;
    for (const RankFile& rank : job.ranks) hosts_.insert(rank.process().host);
  }

  void add(std::size_t rank, std::size_t part, const trace::Replay& replay, trace::Lines& lines,
           const trace::Progress& progress) {
    const trace::Process& process = job_.ranks[rank].process();
    PerfettoPlace place = only_place(process);
    place.number = static_cast<unsigned>(rank);
    place.part = static_cast<unsigned>(part);
    if (job_.ranks[rank].is_helper) place.name = "rank " + job_.ranks[rank].name();
    if (part == 0) {
      pid_ = free_pid(process.pid, pids_);
      described_.clear();
    }
    place.pid = pid_;
    place.described = &described_;
    if (hosts_.size() > 1) place.name += " on " + bridge::printable(process.host);
    place.shift_ns = job_.ranks[rank].shift_ns;
    export_perfetto_process(
        {request_, replay.file(), replay.filter(), replay.lives(), lines, progress, out_},
        std::move(place));
  }

 private:
  TraceExportRequest request_;
  const Job& job_;
  TraceOutput& out_;
  std::set<std::string> hosts_;
  std::set<std::uint64_t> pids_;
  // Of the rank that is written:
  std::uint64_t pid_ = 0;
  std::set<std::uint64_t> described_;
};

// Reads a file at a time; only a few figures of each are kept.
MergedJob read_job(Job job, const TraceMergeRequest& request, TraceOutput& out) {
  MergedJob merged;
  merged.job = std::move(job);
  const std::vector<trace::Filter> filters = filters_of(merged.job, request);
  std::optional<Timeline> timeline;
  if (!request.output.empty()) timeline.emplace(request, merged.job, out);
  for (std::size_t i = 0; i < merged.job.ranks.size(); ++i) {
    const std::vector<TracePart>& parts = merged.job.ranks[i].parts;
    for (std::size_t part = 0; part < parts.size(); ++part) {
      const trace::File& file = *parts[part].file;
      ProgressLine progress;
      const trace::Replay replay(file, filters[i], progress.pass(0));
      trace::Lines lines(file.definitions());
      add_part(merged, i, replay, lines, request.device, progress.pass(1));
      if (timeline) timeline->add(i, part, replay, lines, progress.pass(1));
    }
  }
  if (!request.device || *request.device < 0) {
    ProgressLine progress;
    merged.hosts = host_peaks(merged.job, filters, progress.pass(0));
  }
  return merged;
}

bool is_one_of(const std::string& output, const Job& job) {
  std::error_code ignored;
  for (const RankFile& rank : job.ranks)
    for (const TracePart& part : rank.parts)
      if (std::filesystem::equivalent(part.path, output, ignored)) return true;
  return false;
}

int merge_files(const TraceMergeRequest& request) {
  std::optional<Job> job = open_job(request);
  if (!job) return kTraceTrouble;
  TraceOutput out;
  if (!request.output.empty()) {
    if (is_one_of(request.output, *job)) return trouble(request.output, "is one of the traces");
    // Who may read the traces may read the timeline.
    if (!out.open(request.output, request.force, kOwnersMode)) return trouble(out.error());
  }
  const MergedJob merged = read_job(std::move(*job), request, out);
  if (!request.output.empty() && !out.close()) return trouble(out.error());
  if (request.output == "-") return 0;
  const bool printed = put(answer_of(merged), request.as_json);
  return printed ? 0 : kTraceTrouble;
}

}  // namespace

void add_trace_merge(CLI::App& trace, Work& work) {
  CLI::App& command = *trace.add_subcommand(
      "merge", "Put the traces of a job's ranks side by side, on one time base");
  command.footer(kExamples);
  const auto asked = std::make_shared<TraceMergeRequest>();
  TraceMergeRequest& request = *asked;
  command.add_option("FILE", request.files, "traces, or folders of them")
      ->required()
      ->type_name("");
  command
      .add_option("-o,--output", request.output,
                  "write a timeline of all ranks for Perfetto, too; -: standard output, instead")
      ->type_name("FILE");
  command.add_flag("--force", request.force, "replace a file that exists");
  command.add_flag("--json", request.as_json, "machine-readable");
  command.add_flag("--allow-missing", request.allow_missing, "go on where ranks are missing");
  add_filters(command, request);
  on_parsed(command, work, [asked, &command] {
    asked->names_size = command.count("--min-size") > 0;
    try {
      return merge_files(*asked);
    } catch (const std::bad_alloc&) {
      return trouble("not enough memory to read these traces");
    }
  });
}

}  // namespace pleat::cli
