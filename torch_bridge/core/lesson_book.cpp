#include "torch_bridge/core/lesson_book.h"

namespace pleat::bridge {

LessonBook::Known* LessonBook::entry(std::uint64_t lesson) {
  constexpr std::size_t kMostLessons = 1 << 16;
  if (learned_.size() >= kMostLessons && !learned_.contains(lesson)) {
    return nullptr;
  }
  return &learned_[lesson];
}

void LessonBook::learn(std::uint64_t lesson, Needs needs) {
  const std::lock_guard<std::mutex> guard(mutex_);
  Known* const known = entry(lesson);
  if (known == nullptr) {
    return;
  }
  const Needs before = known->load(std::memory_order_relaxed);
  Needs raised = before;
  raised.raise(needs);
  if (raised != before) {
    known->store(raised, std::memory_order_release);
    forget_cached_answers();
  }
}

Needs LessonBook::learned(std::uint64_t lesson) {
  const std::lock_guard<std::mutex> guard(mutex_);
  const auto found = learned_.find(lesson);
  return found == learned_.end() ? Needs() : found->second.load(std::memory_order_relaxed);
}

const LessonBook::Known* LessonBook::follow(std::uint64_t lesson) {
  const std::lock_guard<std::mutex> guard(mutex_);
  return entry(lesson);
}

bool LessonBook::is_new(std::uint64_t lesson, std::uint64_t pass) {
  constexpr std::uint64_t kNewPasses = 4;
  constexpr std::size_t kMostKnown = 4096;
  const std::lock_guard<std::mutex> guard(mutex_);
  if (first_asked_.size() >= kMostKnown && !first_asked_.contains(lesson)) {
    return false;
  }
  return pass - first_asked_.try_emplace(lesson, pass).first->second < kNewPasses;
}

}  // namespace pleat::bridge
