// A tier for tests: a few rooms on the host, copies on a stream of its own, which come late on a
// late device. Refuses rooms and copies at random.
#pragma once

#include <cstring>
#include <memory>
#include <random>
#include <vector>

#include "allocator/store/payload_tier.h"
#include "late_device.h"

namespace pleat::allocator::testing {

class StandInTier final : public PayloadTier {
 public:
  StandInTier(LateDevice& device, StreamOrder& order, std::mt19937_64& random)
      : device_(device), order_(order), random_(random) {}

  void* take(std::size_t bytes) noexcept override {
    if (bytes > kMostBytes || random_() % 8 == 0) return nullptr;
    for (Room& room : rooms_) {
      if (room.taken) continue;
      room.taken = true;
      return room.begin;
    }
    return nullptr;
  }
  void give(void* given) noexcept override {
    for (Room& room : rooms_) {
      if (room.begin != given) continue;
      if (!room.taken) device_.complain("a room of the tier is given twice");
      room.taken = false;
    }
  }
  bool copy_out(void* room, const void* from, std::size_t bytes, StreamId stream,
                EventHandle* done) noexcept override {
    if (random_() % 8 == 0) return false;
    copy(room, from, bytes, stream);
    *done = order_.record(kCopies);
    return true;
  }
  bool copy_in(void* to, const void* room, std::size_t bytes, StreamId stream) noexcept override {
    if (random_() % 8 == 0) return false;
    copy(to, room, bytes, stream);
    order_.follow(stream, kCopies);
    return true;
  }
  [[nodiscard]] bool is_empty() const {
    return std::none_of(rooms_.begin(), rooms_.end(), [](const Room& room) { return room.taken; });
  }

 private:
  static constexpr StreamId kCopies{LateDevice::kUserStreams};
  static constexpr std::size_t kMostBytes = 16384, kRooms = 6;
  struct Room {
    std::byte* begin;
    bool taken = false;
  };

  void copy(void* to, const void* from, std::size_t bytes, StreamId after) {
    order_.follow(kCopies, after);
    device_.submit(kCopies, {{from, bytes, false}, {to, bytes, true}},
                   [=] { std::memcpy(to, from, bytes); });
  }
  [[nodiscard]] std::vector<Room> make_rooms() {
    void* begin = memory_.get();
    std::size_t left = kMostBytes * (kRooms + 1);
    std::align(256, kMostBytes * kRooms, begin, left);
    std::vector<Room> rooms;
    for (std::size_t i = 0; i < kRooms; ++i) {
      rooms.push_back({static_cast<std::byte*>(begin) + i * kMostBytes});
    }
    return rooms;
  }

  LateDevice& device_;
  StreamOrder& order_;
  std::mt19937_64& random_;
  std::unique_ptr<std::byte[]> memory_{new std::byte[kMostBytes * (kRooms + 1)]};
  std::vector<Room> rooms_ = make_rooms();
};

}  // namespace pleat::allocator::testing
