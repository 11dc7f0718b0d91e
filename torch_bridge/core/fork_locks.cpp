#include "torch_bridge/core/fork_locks.h"

namespace pleat::bridge {

ForkLocks& fork_locks() noexcept {
  static auto* const locks = new ForkLocks;  // leaked: processes fork until they end
  return *locks;
}

void ForkLock::add() noexcept {
  const std::lock_guard<std::mutex> guard(locks_.mutex_);
  ForkLock* before = locks_.last_;
  while (before != nullptr && before->place_ > place_) {
    before = before->previous_;
  }
  previous_ = before;
  next_ = before != nullptr ? before->next_ : locks_.first_;
  (previous_ != nullptr ? previous_->next_ : locks_.first_) = this;
  (next_ != nullptr ? next_->previous_ : locks_.last_) = this;
}

ForkLock::~ForkLock() {
  const std::lock_guard<std::mutex> guard(locks_.mutex_);
  (previous_ != nullptr ? previous_->next_ : locks_.first_) = next_;
  (next_ != nullptr ? next_->previous_ : locks_.last_) = previous_;
}

void ForkLocks::lock_all() noexcept {
  mutex_.lock();
  for (ForkLock* lock = first_; lock != nullptr; lock = lock->next_) {
    lock->lock_(lock->owner_);
  }
}

void ForkLocks::unlock_all(allocator::ForkSide side) noexcept {
  for (ForkLock* lock = last_; lock != nullptr; lock = lock->previous_) {
    lock->unlock_(lock->owner_, side);
  }
  mutex_.unlock();
}

}  // namespace pleat::bridge
