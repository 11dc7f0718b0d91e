#include "torch_bridge/trace/out_of_memory_report.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdarg>
#include <cstdio>

#include "torch_bridge/core/runtime.h"
#include "torch_bridge/trace/context.h"
#include "torch_bridge/trace/state.h"

namespace pleat::bridge {
namespace {

using allocator::StatKind;
using allocator::StatValues;

// Text of a bounded length: what does not fit is left out.
class Page {
 public:
  __attribute__((format(printf, 2, 3))) void add(const char* format, ...) noexcept {
    va_list arguments;
    va_start(arguments, format);
    const int length =
        std::vsnprintf(text_.data() + size_, text_.size() - size_, format, arguments);
    va_end(arguments);
    if (length > 0) size_ = std::min(size_ + static_cast<std::size_t>(length), text_.size() - 1);
  }
  // At once, so that other threads' lines do not come between.
  void write() const noexcept {
    const int error = errno;
    for (std::size_t at = 0; at < size_;) {
      const ssize_t written = ::write(STDERR_FILENO, text_.data() + at, size_ - at);
      if (written < 0 && errno == EINTR) continue;
      if (written <= 0) break;
      at += static_cast<std::size_t>(written);
    }
    errno = error;
  }

 private:
  std::array<char, 8192> text_{};
  std::size_t size_ = 0;
};

struct Size {
  explicit Size(std::int64_t bytes) noexcept {
    constexpr std::array<const char*, 5> kUnits{"B", "KiB", "MiB", "GiB", "TiB"};
    auto value = static_cast<double>(std::max<std::int64_t>(bytes, 0));
    std::size_t unit = 0;
    while (value >= 1024 && unit + 1 < kUnits.size()) {
      value /= 1024;
      ++unit;
    }
    std::snprintf(text.data(), text.size(), unit == 0 ? "%.0f %s" : "%.1f %s", value, kUnits[unit]);
  }
  std::array<char, 16> text{};
};

void add_row(Page& page, const char* name, StatValues values) noexcept {
  if (values.current == 0 && values.peak == 0) return;
  page.add("    %-12s %12s %12s\n", name, Size(values.current).text.data(),
           Size(values.peak).text.data());
}

void add_heap(Page& page, allocator::Heap& heap) noexcept {
  const allocator::Statistics& statistics = heap.statistics();
  const StatValues live = statistics.read(StatKind::kRequested);
  if (live.peak == 0) return;
  if (const std::int32_t device = heap.device().value; device < 0) {
    page.add("  %-14s %12s %12s\n", "host", "now", "at most");
  } else {
    page.add("  cuda:%-9d %12s %12s\n", device, "now", "at most");
  }
  add_row(page, "live", live);
  add_row(page, "  saved raw", statistics.read(StatKind::kSavedRaw));
  add_row(page, "  payloads", statistics.read(StatKind::kPayload));
  add_row(page, "  restored", statistics.read(StatKind::kRestored));
  add_row(page, "cached", statistics.read(StatKind::kCached));
}

void write_page(const char* title) noexcept {
  if (const PleatRecorder* const recorder = trace_recorder()) {
    recorder->page(title);
    return;
  }
  Runtime* const runtime = Runtime::get();
  if (runtime == nullptr) return;
  Page page;
  page.add("pleat: %s\n", title);
  runtime->heaps.for_each([&](allocator::Heap& heap) { add_heap(page, heap); });
  page.add(
      "  which lines hold it: pleat trace record -- python ..., then pleat trace summary "
      "--at oom\n");
  page.write();
}

}  // namespace

void report_out_of_memory(std::size_t bytes, std::int32_t device) noexcept {
  constexpr std::uint32_t kMostPages = 3;
  if (const PleatRecorder* const recorder = trace_recorder()) {
    PleatTraceEvent mark = trace_mark(PLEAT_TRACE_OUT_OF_MEMORY);
    mark.device = static_cast<std::int8_t>(device);
    mark.bytes = bytes;
    mark.op = trace_operator();
    mark.stack = trace_stack(*recorder);
    recorder->event(&mark);
  }
  const std::uint32_t page = trace_state.reports.fetch_add(1, std::memory_order_relaxed);
  if (page >= kMostPages) return;
  std::array<char, 32> where{"the host"};
  if (device >= 0) std::snprintf(where.data(), where.size(), "cuda:%d", device);
  std::array<char, 160> title{};
  std::snprintf(title.data(), title.size(), "out of memory: %s were refused on %s%s",
                Size(static_cast<std::int64_t>(bytes)).text.data(), where.data(),
                page + 1 == kMostPages ? " (the last of these pages)" : "");
  write_page(title.data());
}

void report_memory(const char* title) noexcept {
  if (const PleatRecorder* const recorder = trace_recorder()) {
    PleatTraceEvent mark = trace_mark(PLEAT_TRACE_DUMP);
    mark.stack = trace_stack(*recorder);
    recorder->event(&mark);
  }
  write_page(title != nullptr ? title : "memory");
}

}  // namespace pleat::bridge
