// The locks that fork() takes, so that a child never finds one in the hands of a thread that it
// does not have. Every owner of a lock registers it, at its place in the order of all locks.
// Torch-free.
#pragma once

#include <cstdint>
#include <mutex>

#include "allocator/fork_gate.h"

namespace pleat::bridge {

// The lock order: a thread that holds a lock takes only locks further down. Record::mutex stands
// above all of them. Fork does not take it, but closes the gate that every section around it
// passes: so no thread enters such a section with one of these locks.
enum class ForkPlace : std::uint8_t {
  kInstall,       // installation
  kTrace,         // a trace begins or ends
  kProofs,        // what is known of the graphs that are being recorded
  kOptions,       // held while the heaps are told of new options
  kHeap,          // the idle trimmer ends; the gate; link lock, records that wait, arena, pool
  kKeptStorages,  // restored storages that are kept
  kHandedOut,     // what functions of users have, in threads of devices
  kPolicy,        // what is known of autograd's nodes, and of the code that saves
  kProofBook,     // functions and poles that the report names
  kSensitivity,   // the profile
  kCheck,         // what a check has found
  kScales,        // the scales of keys
};

class ForkLocks;
// Those of the process.
[[nodiscard]] ForkLocks& fork_locks() noexcept;

// A lock in the register, from construction to destruction: a member of the lock's owner, declared
// after the lock, and not const, for the register's list runs through it. `Lock` has
// lock_for_fork() and unlock_after_fork(), with the side or without it; or is a mutex.
class ForkLock {
 public:
  template <class Lock>
  ForkLock(ForkPlace place, Lock& lock, ForkLocks& locks = fork_locks()) noexcept
      : place_(place), owner_(&lock), locks_(locks) {
    lock_ = [](void* owner) noexcept {
      auto& own = *static_cast<Lock*>(owner);
      if constexpr (requires { own.lock_for_fork(); }) {
        own.lock_for_fork();
      } else {
        own.lock();
      }
    };
    unlock_ = [](void* owner, allocator::ForkSide side) noexcept {
      auto& own = *static_cast<Lock*>(owner);
      if constexpr (requires { own.unlock_after_fork(side); }) {
        own.unlock_after_fork(side);
      } else if constexpr (requires { own.unlock_after_fork(); }) {
        own.unlock_after_fork();
      } else {
        own.unlock();
      }
    };
    add();
  }
  ~ForkLock();
  ForkLock(const ForkLock&) = delete;
  ForkLock& operator=(const ForkLock&) = delete;

 private:
  friend class ForkLocks;
  void add() noexcept;

  const ForkPlace place_;
  void* const owner_;
  ForkLocks& locks_;
  void (*lock_)(void*) noexcept = nullptr;
  void (*unlock_)(void*, allocator::ForkSide) noexcept = nullptr;
  ForkLock* previous_ = nullptr;
  ForkLock* next_ = nullptr;
};

// A list through the locks themselves. While a fork is under way nobody joins or leaves it.
class ForkLocks {
 public:
  // Before fork(): all of them, the outermost first; of one place in the order they registered.
  void lock_all() noexcept;
  // After it, on either side, in the other order.
  void unlock_all(allocator::ForkSide side) noexcept;

 private:
  friend class ForkLock;
  std::mutex mutex_;
  ForkLock* first_ = nullptr;
  ForkLock* last_ = nullptr;
};

}  // namespace pleat::bridge
