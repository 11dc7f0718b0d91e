// Bugs planted in residency's order of steps (planted_bugs.cmake): the suite of whole lives finds
// each within 200 seeds. A bug can crash or hang the process it runs in.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <iterator>
#include <string>

#include "planted_event.h"
#include "planted_names.h"
#include "residency_life.h"
#include "test_support.h"

int planted_bug = 0;

namespace pleat::allocator::testing {
namespace {

constexpr int kSeeds = 200;

// The first seed that finds the bug, by problem or by crash; -1 if no seed does.
int seed_that_finds(int bug, std::uint64_t first) {
  for (int i = 0; i < kSeeds; i += 25) {
    int channel[2];
    if (pipe(channel) != 0) return -1;
    const pid_t child = fork();
    if (child == 0) {
      const rlimit cpu{3, 3};  // ends a spinning hang; the alarm ends a sleeping one
      setrlimit(RLIMIT_CPU, &cpu);
      alarm(60);
      planted_bug = bug;
      for (int k = i; k < i + 25; ++k) {
        (void)!write(channel[1], &k, sizeof k);
        if (!ResidencyLife<LateWorld>(first + static_cast<std::uint64_t>(k)).run(80).empty()) {
          _exit(1);
        }
      }
      _exit(0);
    }
    close(channel[1]);
    int last = -1;
    for (int k = 0; read(channel[0], &k, sizeof k) == sizeof k;) last = k;
    close(channel[0]);
    int status = 0;
    waitpid(child, &status, 0);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) return last;
  }
  return -1;
}

TEST(PlantedBugsTest, EachPlantedBugIsFoundWithinTwoHundredSeeds) {
  PLEAT_SEED(first);
  EXPECT_EQ(seed_that_finds(0, first), -1) << "found a bug where none is planted";
  for (int bug = 1; bug < static_cast<int>(std::size(kPlantedBugs)); ++bug) {
    const int seed = seed_that_finds(bug, first);
    EXPECT_GE(seed, 0) << "not found: " << kPlantedBugs[bug];
    std::printf("%4d  %s\n", seed, kPlantedBugs[bug]);
  }
}

TEST(PlantedBugsTest, EventDeliveredUnderLocksIsFoundByALockingSink) {
  PLEAT_SEED(first);
  EXPECT_EQ(seed_that_finds(kToldUnderOurLocks, first), -1) << "found by something else";
  const auto with_locks = [first](int bug) {
    planted_bug = bug;
    ToldKinds told{};
    for (std::uint64_t seed = first; seed < first + 20; ++seed) {
      ResidencyLife<LateWorld> life(seed);
      life.take_locks_at_events(told);
      if (!life.run(80).empty()) std::exit(1);
    }
    std::exit(told[static_cast<std::size_t>(EventKind::kTag)] > 0 ? 0 : 2);
  };
  EXPECT_EXIT(with_locks(0), ::testing::ExitedWithCode(0), "");
  EXPECT_EXIT(with_locks(kToldUnderOurLocks), ::testing::KilledBySignal(SIGABRT), "a lock is held");
}

}  // namespace
}  // namespace pleat::allocator::testing
