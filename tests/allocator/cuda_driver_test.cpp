// The driver's functions, contexts and events, on a scripted driver.
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>
#include <vector>

#include "allocator/cuda/driver.h"
#include "allocator/cuda/stream_events.h"

namespace pleat::allocator::cuda {
namespace {

constexpr int kInvalid = 1;
constexpr int kOutOfMemory = 2;

// One process, two devices. Contexts are 100 + device. A stream has done its jobs up to
// `done[stream]`; an event is complete once its stream has done the jobs before it.
struct World {
  void* current = nullptr;
  std::vector<void*> stack;
  bool active[2] = {true, false};
  int references[2] = {1, 0};
  int made = 0;
  int calls = 0;
  std::map<void*, std::pair<void*, int>> recorded;
  std::map<void*, int> given, done;
  std::set<void*> destroyed, synchronized, capturing;
  std::vector<std::pair<void*, void*>> waits;
  bool no_events = false;
  bool gone = false;

  int answer(int result) {
    ++calls;
    return gone ? kDeinitialized : result;
  }
};
World* world = nullptr;

void* context_of(int device) { return reinterpret_cast<void*>(std::uintptr_t{100} + device); }

Driver fake_driver() {
  Driver d;
  d.context_current = [](void** context) {
    *context = world->current;
    return world->answer(kSuccess);
  };
  d.context_device = [](int* device) {
    *device = static_cast<int>(reinterpret_cast<std::uintptr_t>(world->current) - 100);
    return world->answer(kSuccess);
  };
  d.primary_state = [](int device, unsigned* flags, int* active) {
    *flags = 0;
    *active = world->active[device] ? 1 : 0;
    return world->answer(kSuccess);
  };
  d.primary_retain = [](void** context, int device) {
    ++world->references[device];
    *context = context_of(device);
    return world->answer(kSuccess);
  };
  d.primary_release = [](int device) {
    --world->references[device];
    return world->answer(kSuccess);
  };
  d.context_push = [](void* context) {
    world->stack.push_back(world->current);
    world->current = context;
    return world->answer(kSuccess);
  };
  d.context_pop = [](void** context) {
    *context = world->current;
    world->current = world->stack.back();
    world->stack.pop_back();
    return world->answer(kSuccess);
  };
  d.event_create = [](void** event, unsigned flags) {
    EXPECT_EQ(flags, 2u) << "no timing";
    if (world->no_events) return world->answer(kOutOfMemory);
    *event = reinterpret_cast<void*>(std::uintptr_t{0x1000} + ++world->made);
    return world->answer(kSuccess);
  };
  d.event_record = [](void* event, void* stream) {
    world->recorded[event] = {stream, world->given[stream]};
    return world->answer(kSuccess);
  };
  d.event_query = [](void* event) {
    const auto& [stream, before] = world->recorded[event];
    return world->answer(world->done[stream] >= before ? kSuccess : kNotReady);
  };
  d.event_synchronize = [](void* event) {
    const auto& [stream, before] = world->recorded[event];
    world->done[stream] = std::max(world->done[stream], before);
    return world->answer(kSuccess);
  };
  d.event_destroy = [](void* event) {
    world->destroyed.insert(event);
    return world->answer(kSuccess);
  };
  d.stream_wait = [](void* stream, void* event, unsigned) {
    world->waits.emplace_back(stream, event);
    return world->answer(kSuccess);
  };
  d.stream_synchronize = [](void* stream) {
    world->synchronized.insert(stream);
    world->done[stream] = world->given[stream];
    return world->answer(kSuccess);
  };
  d.stream_capturing = [](void* stream, int* status) {
    *status = world->capturing.contains(stream) ? 1 : 0;
    return world->answer(kSuccess);
  };
  return d;
}

class CudaDriverTest : public ::testing::Test {
 protected:
  void SetUp() override { world = &world_; }
  void TearDown() override { world = nullptr; }
  void* stream(StreamId id) { return reinterpret_cast<void*>(id.value); }
  void give(StreamId id) { ++world_.given[stream(id)]; }
  void finish(StreamId id) { world_.done[stream(id)] = world_.given[stream(id)]; }

  World world_;
  const Driver driver = fake_driver();
  DriverLife life;
  StreamEvents events{driver, life, 0};
  const StreamId a{7}, b{8};
};

TEST_F(CudaDriverTest, MissingLibraryOrFunctionIsNamed) {
  std::string missing;
  Driver found;
  EXPECT_FALSE(found.find("libno-such-driver.so.1", missing));
  EXPECT_EQ(missing, "libno-such-driver.so.1");
  EXPECT_FALSE(found.find("libm.so.6", missing));
  EXPECT_EQ(missing, "cuDeviceGet");
}

TEST_F(CudaDriverTest, JobsContextIsBorrowedAndNoneIsMade) {
  {
    const DeviceContext context(driver, life, 0);
    EXPECT_TRUE(context);
    EXPECT_EQ(world_.current, context_of(0));
  }
  EXPECT_EQ(world_.current, nullptr);
  EXPECT_EQ(world_.references[0], 1) << "the job's own";
  {
    const DeviceContext context(driver, life, 1);
    EXPECT_FALSE(context) << "the job has none there";
  }
  EXPECT_EQ(world_.references[1], 0);
  world_.current = context_of(0);
  {
    const int calls = world_.calls;
    const DeviceContext context(driver, life, 0);
    EXPECT_TRUE(context);
    EXPECT_EQ(world_.calls, calls + 2) << "it is the current one already";
  }
  EXPECT_EQ(world_.current, context_of(0));
  EXPECT_TRUE(world_.stack.empty());
}

TEST_F(CudaDriverTest, EventIsCompleteOnceEarlierWorkOfItsStreamIsDone) {
  give(a);
  const EventHandle event = events.record(a);
  ASSERT_NE(event.value, 0u);
  EXPECT_FALSE(events.complete(event));
  finish(a);
  EXPECT_TRUE(events.complete(event));
  give(a);
  EXPECT_TRUE(events.complete(event)) << "what comes later does not count";
  events.release(event);
}

TEST_F(CudaDriverTest, FollowingStreamWaitsForTheOthersEvent) {
  events.follow(b, a);
  ASSERT_EQ(world_.waits.size(), 1u);
  EXPECT_EQ(world_.waits[0].first, stream(b));
  EXPECT_EQ(world_.recorded[world_.waits[0].second].first, stream(a));
  events.follow(a, a);
  EXPECT_EQ(world_.waits.size(), 1u);
}

TEST_F(CudaDriverTest, ReleasedEventsAreReused) {
  for (int i = 0; i < 100; ++i) events.follow(b, a);
  EXPECT_EQ(world_.made, 1);
  const EventHandle first = events.record(a);
  const EventHandle second = events.record(a);
  EXPECT_EQ(world_.made, 2);
  events.release(first);
  events.release(second);
  EXPECT_EQ(events.count().made, 2u);
  EXPECT_EQ(events.count().idle, 2u);
}

TEST_F(CudaDriverTest, WithoutAnEventTheStreamIsSynchronized) {
  world_.no_events = true;
  give(a);
  const EventHandle event = events.record(a);
  EXPECT_EQ(event.value, 0u);
  EXPECT_TRUE(world_.synchronized.contains(stream(a)));
  EXPECT_TRUE(events.complete(event));
}

TEST_F(CudaDriverTest, CapturingStreamIsReported) {
  EXPECT_FALSE(events.is_captured(a));
  world_.capturing.insert(stream(a));
  EXPECT_TRUE(events.is_captured(a));
  EXPECT_FALSE(events.is_captured(b));
}

TEST_F(CudaDriverTest, ShutDownDriverIsNeverCalled) {
  const EventHandle event = events.record(a);
  world_.gone = true;
  give(a);
  (void)events.complete(event);
  ASSERT_FALSE(life.may_call());
  const int calls = world_.calls;
  EXPECT_TRUE(events.complete(event));
  events.wait(b, event);
  events.synchronize(event);
  EXPECT_EQ(events.record(a).value, 0u);
  EXPECT_FALSE(events.is_captured(a));
  events.release(event);
  { const DeviceContext context(driver, life, 0); }
  EXPECT_EQ(world_.calls, calls);
}

}  // namespace
}  // namespace pleat::allocator::cuda
