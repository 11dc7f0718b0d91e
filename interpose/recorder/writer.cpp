#include "interpose/recorder/writer.h"

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
    const bool room =
        map(batch_) && map(sorted_) && map(order_) && names_.open() && modules_.open();
    error = room ? file_.create(path) : ENOMEM;
  }
  if (error == 0) {
    rings_.for_each([](Ring& ring) {  // what came after an earlier trace
      ring.drain([](const PleatTraceEvent&) {});
    });
    base_ = base;
    events_ = batched_ = 0;
    lost_ = lost_so_far();
    small_before_ = small_ = small_so_far();
    said_ = false;
    std::strncpy(path_, path, sizeof path_ - 1);
    flushed_at_ = monotonic_ns();
    file_.set_most_bytes(most_bytes);
    file_.process(process);
    reserved_.store(0, std::memory_order_relaxed);
    look_at_.store(0, std::memory_order_relaxed);
    stop_.store(false, std::memory_order_relaxed);
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
  if (error != 0) thread_ = {};
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
    file_.end();
    file_bytes_.store(file_.file_bytes(), std::memory_order_relaxed);
    file_.close();
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
  open_ = false;
}

// ---- the thread ---------------------------------------------------------------------------------

void Writer::wake() noexcept {
  calls_.fetch_add(1, std::memory_order_release);
  ::syscall(SYS_futex, &calls_, FUTEX_WAKE_PRIVATE, 1, nullptr, nullptr, 0);
}

void Writer::wait() noexcept {
  const std::uint32_t seen = calls_.load(std::memory_order_acquire);
  if (look_.load(std::memory_order_relaxed) || stop_.load(std::memory_order_acquire)) return;
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
  drain();
  const std::uint64_t now = monotonic_ns();
  look_.store(false, std::memory_order_relaxed);
  note_resident(now);
  note_small(now);
  note_lost(now);
  if (last || batched_ >= kFlushRecords || now - flushed_at_ >= kFlushNs) {
    flush();
    flushed_at_ = now;
  }
}

void Writer::add(const PleatTraceEvent& event) noexcept {
  if (batched_ == kMostRecords) flush();
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
std::span<const PleatTraceEvent> Writer::in_order() noexcept {
  const auto earlier = [](const auto& a, const auto& b) { return a.time_ns < b.time_ns; };
  if (std::is_sorted(batch_, batch_ + batched_, earlier)) return {batch_, batched_};
  for (std::size_t i = 0; i < batched_; ++i) order_[i] = {batch_[i].time_ns, i};
  std::sort(order_, order_ + batched_, [](const Place& a, const Place& b) {
    return a.time_ns != b.time_ns ? a.time_ns < b.time_ns : a.at < b.at;
  });
  for (std::size_t i = 0; i < batched_; ++i) sorted_[i] = batch_[order_[i].at];
  return {sorted_, batched_};
}

void Writer::flush() noexcept {
  if (batched_ == 0) return;
  file_.names(names_, modules_);
  file_.records(in_order(), base_);
  file_bytes_.store(file_.file_bytes(), std::memory_order_relaxed);
  batched_ = 0;
  if (file_.state() != FileState::kOpen && !said_) {
    said_ = true;
    say_why_it_ended();
  }
}

void Writer::say_why_it_ended() const noexcept {
  const char* why = "it is as large as it may be";
  if (file_.state() == FileState::kFailed) why = ::strerrordesc_np(file_.error());
  if (file_.state() == FileState::kLost) why = "its file was closed";
  std::array<char, sizeof path_ + 128> line;
  const int bytes = std::snprintf(line.data(), line.size(), "pleat: the trace %s ends here: %s\n",
                                  path_, why != nullptr ? why : "an error");
  if (bytes > 0 && ::write(STDERR_FILENO, line.data(), static_cast<std::size_t>(bytes)) < 0) return;
}

}  // namespace pleat::trace
