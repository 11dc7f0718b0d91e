#include "interpose/trace/ring.h"

#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <new>

#include "interpose/trace/mapped.h"

namespace pleat::trace {
namespace {

// Gives a ring back when its thread ends.
pthread_key_t make_key() noexcept {
  pthread_key_t key = 0;
  ::pthread_key_create(&key, [](void*) { Rings::leave(); });
  return key;
}
const pthread_key_t key = make_key();

}  // namespace

constinit thread_local Ring* Rings::mine_ = nullptr;

// A thread may have events once it has left: it takes a ring again, and leaves once more.
Ring* Rings::take_one() noexcept {
  const auto thread = static_cast<std::uint32_t>(::syscall(SYS_gettid));
  Ring* ring = first_.load(std::memory_order_acquire);
  while (ring != nullptr && !ring->take(thread)) ring = ring->next;
  if (ring == nullptr) {
    void* const memory = map_zeros(sizeof(Ring));
    if (memory == nullptr) return nullptr;
    ring = new (memory) Ring;
    if (!ring->take(thread)) return nullptr;
    ring->next = first_.load(std::memory_order_relaxed);
    while (!first_.compare_exchange_weak(ring->next, ring, std::memory_order_release)) {
    }
  }
  mine_ = ring;
  ::pthread_setspecific(key, ring);
  return ring;
}

}  // namespace pleat::trace
