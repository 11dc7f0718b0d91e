// The writer's thread: empties the rings twenty times a second, looks how much of the process is
// resident, writes blocks, and keeps the book of what lives. It is born with the first event.
#pragma once

#include <pthread.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "interpose/trace/block_writer.h"
#include "interpose/trace/book_lines.h"
#include "interpose/trace/book_replay.h"
#include "interpose/trace/live_book.h"
#include "interpose/trace/names.h"
#include "interpose/trace/out_of_memory_report.h"
#include "interpose/trace/page_request.h"
#include "interpose/trace/parts.h"
#include "interpose/trace/ring.h"
#include "interpose/trace/top_file.h"

namespace pleat::trace {

class Writer {
 public:
  Writer(Rings& rings, Names& names) noexcept : rings_(rings), names_(names) {}

  // Creates the file. 0, or the error's number.
  [[nodiscard]] int open(const char* path, std::string_view process, std::uint64_t most_bytes,
                         std::uint64_t base) noexcept;
  // Begins the thread if there is none. From any thread that has an event.
  void begin_once() noexcept {
    if (!begun_.load(std::memory_order_relaxed)) [[unlikely]]
      begin();
  }
  // There is much to do, or the process has grown.
  void wake() noexcept;
  // Writes all there is and ends the file. Returns the number of events in it.
  std::uint64_t close() noexcept;
  // In a forked child, which does not have the thread.
  void abandon() noexcept;
  // The process ends, whatever the thread does.
  void leave_nothing_behind() noexcept { top_.remove(); }

  // Has a page written to stderr, of all events that the calling thread has put down, and has these
  // in the file. Waits for it, a second at most.
  void page(const char* title) noexcept;

  // What Pleat's memory has reserved changed: beyond the highest so far by 1 %, the writer looks at
  // the process at once.
  void note_reserved(std::int64_t change) noexcept {
    const std::int64_t now = reserved_.fetch_add(change, std::memory_order_relaxed) + change;
    if (now > look_at_.load(std::memory_order_relaxed)) [[unlikely]] {
      look_at_.store(now + now / 100, std::memory_order_relaxed);
      look_.store(true, std::memory_order_relaxed);
      wake();
    }
  }

  [[nodiscard]] std::uint64_t processor_ns() const noexcept {
    return processor_ns_.load(std::memory_order_relaxed);
  }
  [[nodiscard]] std::uint64_t file_bytes() const noexcept {
    return file_bytes_.load(std::memory_order_relaxed);
  }

 private:
  static constexpr std::uint64_t kRoundNs = 50'000'000;   // between two looks at the rings
  static constexpr std::uint64_t kFlushNs = 250'000'000;  // the most that a killed job loses, twice
  static constexpr std::size_t kFlushRecords = 16'384;
  static constexpr std::size_t kToldAtOnce = 8192;

  void begin() noexcept;
  void create_thread() noexcept;
  void run() noexcept;
  void wait() noexcept;
  void round(bool last) noexcept;
  void drain() noexcept;
  void note_small(std::uint64_t now) noexcept;
  void note_resident(std::uint64_t now) noexcept;
  void note_lost(std::uint64_t now) noexcept;
  void flush(std::uint64_t until_ns) noexcept;
  void write(std::span<PleatTraceEvent> events) noexcept;
  [[nodiscard]] bool begin_part() noexcept;
  [[nodiscard]] bool replay() noexcept;
  void write_page() noexcept;
  [[nodiscard]] std::span<PleatTraceEvent> in_order() noexcept;
  void say_why_it_ended() const noexcept;
  [[nodiscard]] std::uint64_t lost_so_far() noexcept;
  [[nodiscard]] Ring::Small small_so_far() noexcept;
  void add(const PleatTraceEvent& event) noexcept;

  Rings& rings_;
  Names& names_;
  Modules modules_;
  BlockWriter file_;
  Parts parts_;
  PageRequest pages_;
  std::uint64_t base_ = 0;
  std::uint64_t most_bytes_ = 0;  // of two parts together; 0: there is one, of any size

  pthread_mutex_t mutex_ = PTHREAD_MUTEX_INITIALIZER;  // around the thread's begin and end
  pthread_t thread_{};
  std::atomic<bool> open_{false};
  std::atomic<bool> begun_{true};        // nothing is to begin
  std::atomic<std::uint32_t> calls_{0};  // changes with each wake(): what the thread sleeps on
  std::atomic<bool> stop_{false};
  std::atomic<bool> no_thread_{false};  // it could not be made
  std::atomic<bool> look_{false};
  std::atomic<std::int64_t> reserved_{0}, look_at_{0};
  std::atomic<std::uint64_t> processor_ns_{0}, file_bytes_{0};

  // ---- in the thread ----
  struct Place {
    std::uint64_t time_ns;
    std::size_t at;
  };
  PleatTraceEvent* batch_ = nullptr;   // kMostRecords of them
  PleatTraceEvent* sorted_ = nullptr;  // the same
  Place* order_ = nullptr;             // the same
  std::size_t batched_ = 0;
  std::uint64_t flushed_at_ = 0;
  std::uint64_t events_ = 0, lost_ = 0;
  Ring::Small small_{}, small_before_{};
  bool said_ = false;
  std::uint64_t until_ns_ = 0;       // later events may have companions in other rings: they wait
  std::uint64_t part_ns_ = 0;        // when the part began; 0: with the trace
  bool fresh_part_ = false;          // no event has been written to it yet
  PleatTraceEvent* told_ = nullptr;  // kToldAtOnce of them: how a part begins
  std::size_t told_count_ = 0;
  LiveBook book_;
  BookLines lines_{names_, modules_};
  BookReplay replay_;
  OutOfMemoryReport page_;
  TopFile top_;
};

[[nodiscard]] std::uint64_t monotonic_ns() noexcept;

}  // namespace pleat::trace
