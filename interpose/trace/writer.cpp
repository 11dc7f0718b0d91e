#include "interpose/trace/writer.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <type_traits>

namespace pleat::trace {
namespace {

std::uint64_t ns_of(clockid_t clock) noexcept {
  timespec now{};
  ::clock_gettime(clock, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000u +
         static_cast<std::uint64_t>(now.tv_nsec);
}

// 0: it cannot be read.
std::uint64_t resident_bytes() noexcept {
  const int file = ::open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
  if (file < 0) return 0;
  std::array<char, 128> text{};
  const ssize_t bytes = ::read(file, text.data(), text.size() - 1);
  ::close(file);
  const char* const second = bytes > 0 ? std::strchr(text.data(), ' ') : nullptr;
  if (second == nullptr) return 0;
  static const auto page = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  return std::strtoull(second, nullptr, 10) * page;
}

PleatTraceEvent mark_of(PleatTraceKind kind, std::uint64_t now) noexcept {
  PleatTraceEvent mark{};
  mark.kind = static_cast<std::uint8_t>(kind);
  mark.device = -1;
  mark.time_ns = now;
  return mark;
}

}  // namespace

std::uint64_t monotonic_ns() noexcept { return ns_of(CLOCK_MONOTONIC); }

// ---- begin and end ------------------------------------------------------------------------------

int Writer::open(const char* path, std::string_view process, std::uint64_t most_bytes,
                 std::uint64_t base) noexcept {
  ::pthread_mutex_lock(&mutex_);
  int error = EBUSY;
  if (!open_) {
    const auto map = [](auto*& array) {
      using Entry = std::remove_reference_t<decltype(*array)>;
      if (array == nullptr) array = static_cast<Entry*>(map_zeros(kMostRecords * sizeof(Entry)));
      return array != nullptr;
    };
    const bool room = map(batch_) && map(sorted_) && map(order_) && names_.open() &&
                      modules_.open() && book_.begin();
    error = room ? parts_.begin(path, process, most_bytes != 0) : ENOMEM;
    if (error == 0) error = file_.create(path);
  }
  if (error == 0) {
    rings_.for_each([](Ring& ring) {  // what came after an earlier trace
      ring.drain([](const PleatTraceEvent&) {});
    });
    base_ = base;
    events_ = batched_ = 0;
    lost_ = lost_so_far();
    small_before_ = small_ = small_so_far();
    said_ = fresh_part_ = false;
    part_ns_ = 0;
    flushed_at_ = monotonic_ns();
    most_bytes_ = most_bytes;
    file_.set_most_bytes(most_bytes / 2);
    file_.process(process);
    top_.create(flushed_at_);
    reserved_.store(0, std::memory_order_relaxed);
    look_at_.store(0, std::memory_order_relaxed);
    stop_.store(false, std::memory_order_relaxed);
    no_thread_.store(false, std::memory_order_relaxed);
    open_ = true;
    file_bytes_.store(file_.file_bytes(), std::memory_order_relaxed);
    begun_.store(false, std::memory_order_release);
  }
  ::pthread_mutex_unlock(&mutex_);
  return error;
}

void Writer::begin() noexcept {
  // Somebody opens or closes, perhaps this thread, interrupted: a later event begins the thread.
  if (::pthread_mutex_trylock(&mutex_) != 0) return;
  if (!begun_.exchange(true, std::memory_order_acq_rel)) create_thread();
  ::pthread_mutex_unlock(&mutex_);
}

void Writer::create_thread() noexcept {
  sigset_t all, before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  pthread_attr_t attributes;
  ::pthread_attr_init(&attributes);
  ::pthread_attr_setstacksize(&attributes, std::size_t{256} << 10);
  const int error = ::pthread_create(
      &thread_, &attributes,
      [](void* self) -> void* {
        ::prctl(PR_SET_NAME, "pleat-trace", 0, 0, 0);
        static_cast<Writer*>(self)->run();
        return nullptr;
      },
      this);
  ::pthread_attr_destroy(&attributes);
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (error != 0) {
    thread_ = {};
    no_thread_.store(true, std::memory_order_release);
  }
}

std::uint64_t Writer::close() noexcept {
  ::pthread_mutex_lock(&mutex_);
  std::uint64_t events = 0;
  if (open_) {
    const bool begun = begun_.exchange(true, std::memory_order_acq_rel);
    if (begun && thread_ != pthread_t{}) {
      stop_.store(true, std::memory_order_release);
      wake();
      ::pthread_join(thread_, nullptr);
      thread_ = {};
    } else {
      round(true);
    }
    pages_.give_up();
    file_.end();
    file_bytes_.store(file_.file_bytes(), std::memory_order_relaxed);
    file_.close();
    top_.end();
    events = events_;
    open_ = false;
  }
  ::pthread_mutex_unlock(&mutex_);
  return events;
}

void Writer::abandon() noexcept {
  ::pthread_mutex_init(&mutex_, nullptr);  // whose owner may be a thread that is not here
  begun_.store(true, std::memory_order_relaxed);
  thread_ = {};
  if (open_) file_.close();
  top_.abandon();
  open_ = false;
}

void Writer::page(const char* title) noexcept {
  begin_once();
  if (no_thread_.load(std::memory_order_acquire) || !open_.load(std::memory_order_acquire)) return;
  pages_.ask(title, [this] { wake(); });
}

// ---- the thread ---------------------------------------------------------------------------------

void Writer::wake() noexcept {
  calls_.fetch_add(1, std::memory_order_release);
  ::syscall(SYS_futex, &calls_, FUTEX_WAKE_PRIVATE, 1, nullptr, nullptr, 0);
}

void Writer::wait() noexcept {
  const std::uint32_t seen = calls_.load(std::memory_order_acquire);
  if (look_.load(std::memory_order_relaxed) || stop_.load(std::memory_order_acquire) ||
      pages_.asked()) {
    return;
  }
  const timespec most{0, static_cast<long>(kRoundNs)};
  ::syscall(SYS_futex, &calls_, FUTEX_WAIT_PRIVATE, seen, &most, nullptr, 0);
}

void Writer::run() noexcept {
  while (!stop_.load(std::memory_order_acquire)) {
    wait();
    round(false);
    processor_ns_.store(ns_of(CLOCK_THREAD_CPUTIME_ID), std::memory_order_relaxed);
  }
  round(true);
}

void Writer::round(bool last) noexcept {
  const bool asked = pages_.take();
  // Who has seen an event of another thread has one that is later: none is written before its
  // cause.
  const std::uint64_t now = monotonic_ns();
  until_ns_ = last ? ~std::uint64_t{0} : now;
  drain();
  look_.store(false, std::memory_order_relaxed);
  note_resident(now);
  note_small(now);
  note_lost(now);
  if (last || asked || batched_ >= kFlushRecords || now - flushed_at_ >= kFlushNs) {
    flush(until_ns_);
    flushed_at_ = now;
    top_.update(book_, lines_, now);
  }
  if (!asked) return;
  write_page();
  pages_.done();
}

void Writer::add(const PleatTraceEvent& event) noexcept {
  if (batched_ == kMostRecords) flush(until_ns_);
  if (batched_ == kMostRecords) flush(~std::uint64_t{0});
  batch_[batched_++] = event;
}

void Writer::drain() noexcept {
  rings_.for_each([this](Ring& ring) {
    events_ += ring.drain([this](const PleatTraceEvent& event) { add(event); });
  });
}

void Writer::note_resident(std::uint64_t now) noexcept {
  PleatTraceEvent mark = mark_of(PLEAT_TRACE_RESIDENT, now);
  mark.bytes = resident_bytes();
  if (mark.bytes != 0) add(mark);
}

Ring::Small Writer::small_so_far() noexcept {
  Ring::Small sum;
  rings_.for_each([&sum](Ring& ring) {
    const Ring::Small one = ring.small();
    sum.came += one.came;
    sum.went += one.went;
    sum.count_came += one.count_came;
    sum.count_went += one.count_went;
  });
  return sum;
}

void Writer::note_small(std::uint64_t now) noexcept {
  const Ring::Small sum = small_so_far();
  if (sum.came == small_.came && sum.went == small_.went) return;
  small_ = sum;
  PleatTraceEvent mark = mark_of(PLEAT_TRACE_SMALL, now);
  mark.record = sum.came - small_before_.came;
  mark.node = sum.count_came - small_before_.count_came;
  // What lived when the trace began may go in it.
  mark.bytes = mark.record - std::min(mark.record, sum.went - small_before_.went);
  mark.block = mark.node - std::min(mark.node, sum.count_went - small_before_.count_went);
  add(mark);
}

std::uint64_t Writer::lost_so_far() noexcept {
  std::uint64_t lost = names_.refused();
  rings_.for_each([&lost](Ring& ring) { lost += ring.lost(); });
  return lost;
}

void Writer::note_lost(std::uint64_t now) noexcept {
  const std::uint64_t lost = lost_so_far();
  if (lost <= lost_) return;
  PleatTraceEvent mark = mark_of(PLEAT_TRACE_LOST, now);
  mark.bytes = lost - lost_;
  lost_ = lost;
  add(mark);
}

// Threads come one after the other in a batch. Each of them is in order, but for what happened
// within an event.
std::span<PleatTraceEvent> Writer::in_order() noexcept {
  const auto earlier = [](const auto& a, const auto& b) { return a.time_ns < b.time_ns; };
  if (std::is_sorted(batch_, batch_ + batched_, earlier)) return {batch_, batched_};
  for (std::size_t i = 0; i < batched_; ++i) order_[i] = {batch_[i].time_ns, i};
  std::sort(order_, order_ + batched_, [](const Place& a, const Place& b) {
    return a.time_ns != b.time_ns ? a.time_ns < b.time_ns : a.at < b.at;
  });
  for (std::size_t i = 0; i < batched_; ++i) sorted_[i] = batch_[order_[i].at];
  return {sorted_, batched_};
}

// What is later stays for the next time.
void Writer::flush(std::uint64_t until_ns) noexcept {
  if (batched_ == 0) return;
  const std::span<PleatTraceEvent> all = in_order();
  std::size_t count = all.size();
  while (count > 0 && all[count - 1].time_ns > until_ns) --count;
  if (count == 0) return;
  write(all.first(count));
  batched_ = all.size() - count;
  std::memmove(batch_, all.data() + count, batched_ * sizeof *batch_);
  file_bytes_.store(file_.file_bytes(), std::memory_order_relaxed);
  if (file_.state() != FileState::kOpen && !said_) {
    said_ = true;
    say_why_it_ended();
  }
}

// The book says what was written, so that another part can begin between any two events. Once the
// file takes no more, it goes on alone.
void Writer::write(std::span<PleatTraceEvent> events) noexcept {
  std::size_t piece = events.size();
  while (!events.empty() && file_.state() == FileState::kOpen) {
    // A part begins before all that is in it: what was told late is of that moment.
    for (PleatTraceEvent& event : events) {
      if (event.time_ns >= part_ns_) break;
      event.time_ns = part_ns_;
    }
    const std::span<PleatTraceEvent> some = events.first(std::min(piece, events.size()));
    file_.names(names_, modules_);
    const bool named = file_.state() == FileState::kOpen;
    if (named) file_.records(some, base_);
    if (file_.state() == FileState::kOpen) {
      for (const PleatTraceEvent& event : some) book_.apply(event);
      events = events.subspan(some.size());
      fresh_part_ = false;
    } else if (file_.state() == FileState::kFull && named && fresh_part_ && piece > 1) {
      piece /= 2;
      file_.try_again();
    } else if (file_.state() != FileState::kFull || fresh_part_ || !begin_part()) {
      break;
    }
  }
  for (const PleatTraceEvent& event : events) book_.apply(event);
}

void Writer::say_why_it_ended() const noexcept {
  const char* why = "it is as large as it may be";
  if (file_.state() == FileState::kFailed) why = ::strerrordesc_np(file_.error());
  if (file_.state() == FileState::kLost) why = "its file was closed";
  const char* const more = file_.state() == FileState::kFull ? parts_.problem() : nullptr;
  std::array<char, 4096 + 256> line;
  const int bytes =
      std::snprintf(line.data(), line.size(), "pleat: the trace %s ends here: %s%s%s\n",
                    parts_.path(), why != nullptr ? why : "an error",
                    more != nullptr ? ", and " : "", more != nullptr ? more : "");
  if (bytes > 0) write_to_stderr({line.data(), static_cast<std::size_t>(bytes)});
}

}  // namespace pleat::trace
