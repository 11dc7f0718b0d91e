#include "allocator/event_sink.h"

#include <thread>
#include <utility>

namespace pleat::allocator {
namespace {

// The innermost scope of this thread.
thread_local EventScope* innermost = nullptr;

}  // namespace

void EventSource::attach(EventSink* sink, Annotate annotate) noexcept {
  // A thread that still reads the old sink incremented delivering_ before it read sink_.
  sink_.store(nullptr, std::memory_order_seq_cst);
  while (delivering_.load(std::memory_order_seq_cst) != 0) std::this_thread::yield();
  annotate_.store(annotate, std::memory_order_relaxed);
  sink_.store(sink, std::memory_order_seq_cst);
}

void EventSource::deliver(const Event& event) noexcept {
  delivering_.fetch_add(1, std::memory_order_seq_cst);
  if (EventSink* const sink = sink_.load(std::memory_order_seq_cst)) sink->on_event(event);
  delivering_.fetch_sub(1, std::memory_order_release);
}

void EventScope::enter() noexcept {
  entered_ = true;
  outer_ = std::exchange(innermost, this);
  root_ = outer_ != nullptr ? outer_->root_ : this;
  wanted_ = source_.wanted();
  if (wanted_) change_.fill(0);
}

void EventScope::leave() noexcept {
  if (changed_) {
    // Changes after the last event of this scope belong to that event.
    std::vector<Noted>& noted = root_->noted_;
    if (!noted.empty() && noted.back().source == &source_) {
      for (std::size_t i = 0; i < kStatKinds; ++i) noted.back().event.change[i] += change_[i];
    } else {
      keep({});
    }
  }
  innermost = outer_;
  if (root_ != this) return;
  // An event that the sink itself causes must not join the events being delivered.
  const std::vector<Noted> telling = std::move(noted_);
  for (const Noted& one : telling) one.source->deliver(one.event);
}

void EventScope::keep(const Event& event) noexcept {
  try {
    Noted& noted = root_->noted_.emplace_back(Noted{&source_, event});
    noted.event.device = source_.device();
    if (const auto annotate = source_.annotate_.load(std::memory_order_relaxed)) {
      annotate(noted.event);
    }
    noted.event.change = change_;
    change_.fill(0);
    changed_ = false;
  } catch (...) {
    source_.lost_.fetch_add(1, std::memory_order_relaxed);
  }
}

}  // namespace pleat::allocator
