// The libFuzzer entry for the file of a trace. A refusal takes one line. An accepted trace is
// replayed: both passes see the same, and no class is ever below 0. Each input is tried as it is
// and with its headers' checks made right, which no mutation would get past.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "interpose/trace/wrapping.h"
#include "tools/pleat/trace/compression.h"
#include "tools/pleat/trace/groups.h"
#include "tools/pleat/trace/modules.h"
#include "tools/pleat/trace/replay.h"

namespace {

using namespace pleat::trace;

constexpr std::uint64_t kMostRecordsReplayed = 50000;

void expect(bool holds, const char* what) {
  if (!holds) {
    std::fprintf(stderr, "wrong: %s\n", what);
    std::abort();
  }
}

void replay(const File& file) {
  Filter filter;
  filter.most_events = kMostRecordsReplayed;
  const Replay replay(file, filter);
  const Lives& lives = replay.lives();
  Lines lines(file.definitions());
  Compression compression(-1, file.definitions(), lines);
  WhatIf what_if(-1, 4, filter), lossless(-1, kLossless, filter);
  ModuleTree modules(file.definitions());
  std::string problem;
  const std::vector<GroupRule> rules{*parse_group("group=a.*b|[0-9]+", problem)};
  Groups groups(rules, file.definitions(), lines);
  PartBook by_module(-1, modules);
  PartBook by_group(-1, groups);
  Curve curve(-1, lives, 10);
  std::vector<LiveEntry> live;
  std::uint64_t seen = 0;
  replay.for_each([&](const PleatTraceEvent& event, const Ledger& ledger) {
    ++seen;
    const Totals& totals = ledger.totals(event.device);
    expect(totals.of(ByteClass::kUnknown) >= 0, "fewer unknown bytes than none");
    expect(totals.slack() >= 0 && totals.cached() >= 0 && ledger.other() >= 0, "below 0");
    compression.take(event, ledger);
    what_if.take(event, ledger);
    lossless.take(event, ledger);
    curve.take(event, ledger, &what_if);
    by_module.take(event, ledger);
    by_group.take(event, ledger);
    if (seen == lives.events) {
      live = ledger.live(-1);
      const std::int64_t would_be = what_if.tell(live, ledger);
      // Rows change by as much as live bytes do.
      std::int64_t sum = wrapping_subtract(ledger.totals(-1).live(), would_be);
      for (const LiveEntry& one : live)
        sum = wrapping_add(sum, wrapping_subtract(one.would_be, one.bytes));
      expect(sum == 0, "rows do not add up");
      (void)ledger.gaps(-1);
    }
  });
  expect(seen == lives.events, "the passes differ");
  for (const Group& one : group(live, GroupBy::kLine, replay, lines)) (void)lines.text(one.frame);
  (void)find_growth(live, lives, lines);
  for (const LiveEntry& entry : live) by_module.take_moment(entry);
  const ModuleTable table = module_table(modules, by_module.uses(), 3, 20);
  expect(table.rows.size() <= 20, "more rows than were asked for");
  for (const ModuleRow& row : table.rows) (void)modules.path_of(row.part);
  (void)by_group.uses();
  (void)compression.lines();
  (void)compression.left();
  expect(curve.points().size() <= 10, "more points than were asked for");
}

void use(const std::string& bytes) {
  const int memory = ::memfd_create("trace", MFD_CLOEXEC);
  expect(memory >= 0 &&
             ::write(memory, bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size()),
         "no memory for the file");
  std::string error;
  const std::unique_ptr<File> file = File::open("/proc/self/fd/" + std::to_string(memory), error);
  expect((file == nullptr) == !error.empty() && error.find('\n') == std::string::npos,
         "the message");
  if (file != nullptr) replay(*file);
  ::close(memory);
}

std::string with_right_checks(std::string bytes) {
  std::size_t at = sizeof(FileHeader);
  BlockHeader header{};
  while (at < bytes.size() && bytes.size() - at >= sizeof header) {
    std::memcpy(&header, &bytes[at], sizeof header);
    header.check = header_check(header);
    std::memcpy(&bytes[at], &header, sizeof header);
    at += sizeof header + header.stored_bytes;
  }
  return bytes;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string bytes(reinterpret_cast<const char*>(data), size);
  use(bytes);
  use(with_right_checks(bytes));
  return 0;
}
