// RecentPlaces remembers the places of the last few large blocks that were freed. Memory that the
// job has just used is probably still in a cache. A block of the same size that is written there
// costs no memory traffic. Not thread-safe.
#pragma once

#include <cstddef>

namespace pleat::allocator {

struct Segment;

class RecentPlaces {
 public:
  void add(Segment& segment, std::size_t granule, std::size_t granules) noexcept {
    places_[next_++ % kPlaces] = {&segment, granule, granules};
  }

  // Calls accept(segment, granule) for the remembered places of `granules` granules, the latest
  // first, until it returns true; then discards that place. False if none was accepted.
  template <typename Accept>
  bool take(std::size_t granules, Accept&& accept) noexcept {
    for (std::size_t back = 1; back <= kPlaces; ++back) {
      Place& place = places_[(next_ - back) % kPlaces];
      if (place.granules == granules && accept(*place.segment, place.granule)) {
        place = {};
        return true;
      }
    }
    return false;
  }

 private:
  static constexpr std::size_t kPlaces = 8;
  struct Place {
    Segment* segment = nullptr;
    std::size_t granule = 0;
    std::size_t granules = 0;  // 0: empty entry
  };
  Place places_[kPlaces];
  std::size_t next_ = 0;
};

}  // namespace pleat::allocator
