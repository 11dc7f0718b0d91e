#include "ranks.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <tuple>

#include "tools/pleat/trace_command/text.h"

namespace pleat::cli {
namespace {

namespace fs = std::filesystem;

// ---- who is there -------------------------------------------------------------------------------

bool is_of_trace(const fs::path& file) {
  return file.extension() == ".trace" ||
         (file.extension() == ".1" && file.stem().extension() == ".trace");
}

// Of parts that belong together all but their number is the same.
auto trace_of(const TracePart& part) {
  const trace::Process& process = part.file->process();
  return std::tie(process.host, process.pid, process.start_ns, process.start_wall_ns, process.rank);
}

// Files of one trace become one.
std::vector<RankFile> join_parts(std::vector<TracePart> files, std::string& error) {
  std::stable_sort(files.begin(), files.end(), [](const TracePart& a, const TracePart& b) {
    return std::pair(trace_of(a), a.number()) < std::pair(trace_of(b), b.number());
  });
  std::vector<RankFile> joined;
  for (TracePart& next : files) {
    const TracePart* const last = joined.empty() ? nullptr : &joined.back().parts.back();
    const bool goes_on = last != nullptr && trace_of(*last) == trace_of(next);
    if (goes_on && next.number() == last->number() && error.empty())
      error = fmt::format("{}: is of the same trace as {}", shown_path(next.path),
                          shown_path(last->path));
    if (goes_on && next.number() - last->number() > 1 && error.empty())
      error =
          fmt::format("{}: is part {} of a trace, and {} is part {}: what came between is missing",
                      shown_path(next.path), next.number(), shown_path(last->path), last->number());
    if (!goes_on) joined.emplace_back();
    joined.back().parts.push_back(std::move(next));
  }
  return joined;
}

void sort_ranks(std::vector<RankFile>& files) {
  std::sort(files.begin(), files.end(), [](const RankFile& a, const RankFile& b) {
    const auto key = [](const RankFile& of) {
      const trace::Process& process = of.process();
      return std::tuple(process.rank < 0, process.rank, of.start_ns(), process.pid,
                        std::string_view(of.path()));
    };
    return key(a) < key(b);
  });
}

bool ran_together(const RankFile& first, const RankFile& later) {
  return first.process().host == later.process().host && first.has_clock && later.has_clock &&
         first.process().pid != later.process().pid && later.start_ns() <= first.last_ns();
}

// Finds helpers. One line; empty: they may well be of one job.
std::string contradiction(std::vector<RankFile>& sorted) {
  const RankFile* sized = nullptr;
  const RankFile* own = nullptr;  // of the rank
  for (RankFile& one : sorted) {
    const trace::Process& process = one.process();
    if (process.rank < 0) continue;
    const std::string path = shown_path(one.path());
    if (own == nullptr || own->process().rank != process.rank) {
      own = &one;
    } else if (ran_together(*own, one)) {
      one.is_helper = true;
    } else {
      return fmt::format("{}: is of rank {}, and so is {}", path, process.rank,
                         shown_path(own->path()));
    }
    if (process.world_size <= 0) continue;
    if (process.rank >= process.world_size)
      return fmt::format("{}: is of rank {} of {}", path, process.rank, process.world_size);
    if (sized == nullptr) sized = &one;
    if (sized->process().world_size != process.world_size)
      return fmt::format("{}: is of a job of {}, and {} of one of {}", path, process.world_size,
                         shown_path(sized->path()), sized->process().world_size);
  }
  return {};
}

void find_missing(Job& job) {
  std::int64_t next = 0;  // the first rank that was not seen
  const auto miss = [&job](std::int64_t first, std::int64_t last) {
    if (first > last) return;
    job.missing += fmt::format("{}{}", job.missing.empty() ? "" : ", ", first);
    if (last > first) job.missing += fmt::format("{}{}", last == first + 1 ? ", " : "-", last);
  };
  for (const RankFile& one : job.ranks) {
    const trace::Process& process = one.process();
    if (!one.is_rank()) continue;
    miss(next, process.rank - 1);
    next = process.rank + 1;
    job.world_size = std::max({job.world_size, process.world_size, next});
  }
  miss(next, job.world_size - 1);
}

// ---- clocks -------------------------------------------------------------------------------------

// From a trace's monotonic clock to the wall clock, modulo 2^64.
std::uint64_t to_wall(const trace::Process& process) {
  return process.start_wall_ns - process.start_ns;
}

bool agree(std::uint64_t a, std::uint64_t b) {
  constexpr std::uint64_t kTolerance = 1'000'000'000;
  return std::min(a - b, b - a) <= kTolerance;
}

// All times become times of the wall clock, and then of the monotonic clock of the first host.
void set_clocks(Job& job) {
  std::map<std::string, std::vector<std::uint64_t>> clocks;  // of each host, as far as they differ
  std::uint64_t start_wall = ~std::uint64_t{0};
  std::uint64_t base = 0;
  for (RankFile& one : job.ranks) {
    const trace::Process& process = one.process();
    one.has_clock = process.start_wall_ns != 0;
    if (!one.has_clock) continue;
    std::vector<std::uint64_t>& known = clocks[process.host];
    const auto same = std::find_if(known.begin(), known.end(), [&](std::uint64_t clock) {
      return agree(clock, to_wall(process));
    });
    one.shift_ns = same != known.end() ? *same : known.emplace_back(to_wall(process));
    if (one.start_ns() >= start_wall) continue;
    start_wall = one.start_ns();
    base = one.shift_ns;
  }
  const bool any_clock = start_wall != ~std::uint64_t{0};
  job.start_ns = any_clock ? start_wall - base : job.ranks.front().own_start_ns();
  for (RankFile& one : job.ranks)
    one.shift_ns = one.has_clock ? one.shift_ns - base : job.start_ns - one.own_start_ns();
}

}  // namespace

std::string RankFile::name() const {
  const std::string own = fmt::format("process {}", process().pid);
  if (process().rank < 0) return own;
  return is_helper ? fmt::format("{}, {}", process().rank, own) : std::to_string(process().rank);
}

std::vector<std::string> trace_files(const std::vector<std::string>& named, std::string& error) {
  std::vector<std::string> files;
  for (const std::string& name : named) {
    std::error_code ignored;
    if (!fs::is_directory(name, ignored)) {
      files.push_back(name);
      continue;
    }
    const std::size_t before = files.size();
    for (const fs::directory_entry& entry : fs::directory_iterator(name, ignored))
      if (is_of_trace(entry.path())) files.push_back(entry.path().string());
    if (files.size() == before) {
      error = fmt::format("{}: has no file that ends with .trace", shown_path(name));
      return {};
    }
    std::sort(files.begin() + static_cast<std::ptrdiff_t>(before), files.end());
  }
  return files;
}

Job job_of(std::vector<TracePart> files, std::string& error) {
  Job job;
  job.ranks = join_parts(std::move(files), error);
  if (!error.empty()) return job;
  set_clocks(job);
  sort_ranks(job.ranks);
  error = contradiction(job.ranks);
  if (error.empty()) find_missing(job);
  return job;
}

}  // namespace pleat::cli
