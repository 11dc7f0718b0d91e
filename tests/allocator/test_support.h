// Shared by the tests of allocator/: seeds, byte literals, devices that misbehave.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <random>
#include <string>

#include "allocator/event_sink.h"
#include "allocator/host/device.h"
#include "allocator/host/pool.h"
#include "allocator/statistics.h"

namespace pleat::allocator::testing {

constexpr std::size_t operator""_KiB(unsigned long long n) { return n << 10; }
constexpr std::size_t operator""_MiB(unsigned long long n) { return n << 20; }
constexpr std::size_t operator""_GiB(unsigned long long n) { return n << 30; }

// PLEAT_TEST_SEED, or a fixed seed. PLEAT_SEED shows it with every failure of the enclosing scope.
inline std::uint64_t test_seed() {
  const char* given = std::getenv("PLEAT_TEST_SEED");
  return given != nullptr ? std::strtoull(given, nullptr, 0) : 20260517;
}
#define PLEAT_SEED(name)                                               \
  const std::uint64_t name = ::pleat::allocator::testing::test_seed(); \
  SCOPED_TRACE("PLEAT_TEST_SEED=" + std::to_string(name))

inline int scaled(int n) {
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
  return n / 10 + 1;
#else
  return n;
#endif
}

// Addresses without memory, to test the structure and shortages. Blocks must not be written.
class FakeDevice : public Device {
 public:
  explicit FakeDevice(std::size_t budget_bytes) : budget_(budget_bytes) {
    caps.returns_pages = true;
    caps.page_bytes = 64_KiB;
  }
  DeviceCapabilities caps;
  // Like a host with free addresses and movable huge pages (here of half a MiB).
  void let_pages_move() {
    caps.reserves_freely = true;
    caps.huge_page_bytes = 512_KiB;
    caps.move_bytes = 1_MiB;
  }
  std::size_t reserved = 0;
  std::size_t released_pages_bytes = 0;
  int segments = 0;
  std::size_t moved_pages_bytes = 0;
  bool release_works = true;
  bool move_works = true;
  bool reserves = true;
  bool extends = true;
  std::function<Released(std::byte*, std::size_t, bool)> on_release;
  std::function<void(std::byte*, std::byte*, std::size_t, bool)> on_move;
  std::function<Joined(std::byte*)> on_join;
  std::function<bool(std::byte*, std::size_t)> on_expect_whole;
  std::function<std::size_t(std::byte*, std::size_t, bool*)> on_look;

  DeviceIndex index() const noexcept override { return {7}; }
  const DeviceCapabilities& capabilities() const noexcept override { return caps; }
  void* reserve_segment(std::size_t bytes, std::size_t room) noexcept override {
    if (!reserves || room > budget_ - reserved) return nullptr;
    reserved += bytes;
    ++segments;
    // Later segments have lower addresses, so that order of address and order of creation differ.
    next_ -= room + std::max(caps.page_bytes, caps.huge_page_bytes);
    return reinterpret_cast<void*>(next_);
  }
  bool extend_segment(void*, std::size_t, std::size_t more) noexcept override {
    if (!extends || more > budget_ - reserved) return false;
    reserved += more;
    return true;
  }
  void release_segment(void*, std::size_t bytes) noexcept override {
    reserved -= bytes;
    --segments;
  }
  Released release_pages(void* begin, std::size_t bytes, bool whole) noexcept override {
    if (!release_works) return Released::kNothing;
    released_pages_bytes += bytes;
    if (on_release) return on_release(static_cast<std::byte*>(begin), bytes, whole);
    return Released::kPages;
  }
  Joined join_pages(void* begin) noexcept override {
    return on_join ? on_join(static_cast<std::byte*>(begin)) : Joined::kNothing;
  }
  bool expect_whole(void* begin, std::size_t bytes) noexcept override {
    return on_expect_whole && on_expect_whole(static_cast<std::byte*>(begin), bytes);
  }
  std::size_t look_at_pages(void* begin, std::size_t pages, bool* present) noexcept override {
    return on_look ? on_look(static_cast<std::byte*>(begin), pages, present) : SIZE_MAX;
  }
  bool move_pages(void* from, void* to, std::size_t bytes, bool whole) noexcept override {
    if (!move_works) return false;
    EXPECT_LE(bytes, caps.move_bytes);
    moved_pages_bytes += bytes;
    if (on_move) on_move(static_cast<std::byte*>(from), static_cast<std::byte*>(to), bytes, whole);
    return true;
  }

 private:
  std::size_t budget_;
  std::uintptr_t next_ = std::uintptr_t{1} << 46;
};

// Options of a pool with segments small enough to need several.
inline PoolOptions small_options() {
  PoolOptions options;
  options.reserve_bytes = 64_MiB;
  options.growth_bytes = 4_MiB;
  options.resident_slack_bytes = 1_MiB;
  return options;
}

class CountingSink final : public EventSink {
 public:
  std::map<EventKind, int> count;
  std::map<EventKind, std::size_t> bytes;
  Event last;
  void on_event(const Event& event) noexcept override {
    ++count[event.kind];
    bytes[event.kind] += event.bytes;
    last = event;
  }
};

inline std::size_t current(const Statistics& statistics, StatKind kind) {
  return static_cast<std::size_t>(statistics.current(kind));
}

}  // namespace pleat::allocator::testing
