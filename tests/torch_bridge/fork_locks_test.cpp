#include "torch_bridge/core/fork_locks.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace pleat::bridge {
namespace {

using allocator::ForkSide;

// Tells what is done to it.
struct Told {
  std::string name;
  std::vector<std::string>* log;
  void lock_for_fork() { log->push_back("lock " + name); }
  void unlock_after_fork(ForkSide side) {
    log->push_back("unlock " + name + (side == ForkSide::kChild ? " in child" : ""));
  }
};

TEST(ForkLocks, AreTakenInTheirOrderWhicheverRegistersFirst) {
  std::vector<std::string> log;
  ForkLocks locks;
  Told keys{"keys", &log}, options{"options", &log}, heap{"heap", &log}, other{"other heap", &log};
  ForkLock a(ForkPlace::kKeptStorages, keys, locks), b(ForkPlace::kOptions, options, locks);
  ForkLock c(ForkPlace::kHeap, heap, locks), d(ForkPlace::kHeap, other, locks);
  locks.lock_all();
  EXPECT_EQ(
      log, (std::vector<std::string>{"lock options", "lock heap", "lock other heap", "lock keys"}));
  log.clear();
  locks.unlock_all(ForkSide::kChild);
  EXPECT_EQ(log, (std::vector<std::string>{"unlock keys in child", "unlock other heap in child",
                                           "unlock heap in child", "unlock options in child"}));
}

TEST(ForkLocks, KnowNothingOfALockThatIsGone) {
  std::vector<std::string> log;
  ForkLocks locks;
  Told first{"first", &log}, middle{"middle", &log}, last{"last", &log};
  auto a = std::make_unique<ForkLock>(ForkPlace::kOptions, first, locks);
  auto b = std::make_unique<ForkLock>(ForkPlace::kHeap, middle, locks);
  auto c = std::make_unique<ForkLock>(ForkPlace::kKeptStorages, last, locks);
  for (auto* gone : {&b, &a, &c}) {
    gone->reset();
    log.clear();
    locks.lock_all();
    locks.unlock_all(ForkSide::kParent);
    const std::size_t left = (a ? 1 : 0) + (c ? 1 : 0);
    EXPECT_EQ(log.size(), 2 * left);
  }
}

// A thread takes both locks over and over, in their order; a third comes and goes. Every child can
// take all of them at once, though it has no such thread.
TEST(ForkLocks, AreFreeInAChildWhateverOtherThreadsDo) {
  ForkLocks locks;
  std::mutex outer, inner, passing;
  ForkLock a(ForkPlace::kPolicy, inner, locks), b(ForkPlace::kOptions, outer, locks);
  std::atomic<bool> stop{false};
  std::thread holder([&] {
    while (!stop) {
      const std::lock_guard<std::mutex> first(outer);
      const std::lock_guard<std::mutex> second(inner);
    }
  });
  std::thread registers([&] {
    while (!stop) {
      ForkLock comes(ForkPlace::kHeap, passing, locks);
      const std::lock_guard<std::mutex> guard(passing);
    }
  });
  for (int i = 0; i < 50; ++i) {
    locks.lock_all();
    const pid_t child = fork();
    if (child == 0) {
      alarm(20);
      locks.unlock_all(ForkSide::kChild);
      const bool free = outer.try_lock() && inner.try_lock();
      if (free) {
        outer.unlock();
        inner.unlock();
        locks.lock_all();  // a child may fork, too
        locks.unlock_all(ForkSide::kParent);
      }
      _exit(free ? 0 : 1);
    }
    locks.unlock_all(ForkSide::kParent);
    int status = -1;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_EQ(status, 0) << i;
  }
  stop = true;
  holder.join();
  registers.join();
}

}  // namespace
}  // namespace pleat::bridge
