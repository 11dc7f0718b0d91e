// Stacks of Python, through its documented C API, which is found in the process.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

#include "interpose/trace/names.h"
#include "interpose/trace/ring.h"

namespace pleat::trace {

class PythonStacks {
 public:
  // Looks for Python, and asks it to say when it ends. False: the process has none, or one that
  // this does not know. The calling thread may have the interpreter's lock, or not.
  bool open() noexcept;

  // The frames of this thread, the innermost first, into `frames`. Returns how many; 0 in a thread
  // that Python does not know, before Python is up, once it ends, and where the interpreter's lock
  // is somebody else's and `may_wait` is false. `use(frames)` is called with the lock held.
  template <class Use>
  std::uint32_t with_frames(std::span<RawFrame> frames, bool may_wait, Use&& use) noexcept {
    Lock lock(*this, may_wait);
    if (!lock) return 0;
    return use(frames.first(walk(frames)));
  }

  // With the lock held, while a frame of that code lives. Keeps the code object for good: its
  // address is its name here.
  [[nodiscard]] Frame describe(const RawFrame& raw, Names& names) noexcept;

  // The code of the interpreter: a native frame in it is no news beside those of Python.
  [[nodiscard]] bool is_interpreter(std::uint64_t address) const noexcept {
    return address - text_begin_ < text_bytes_;
  }

 private:
  class Lock {
   public:
    Lock(const PythonStacks& stacks, bool may_wait) noexcept;
    ~Lock();
    Lock(const Lock&) = delete;
    Lock& operator=(const Lock&) = delete;
    explicit operator bool() const noexcept { return held_; }

   private:
    const PythonStacks& stacks_;
    bool held_ = false;
    bool taken_ = false;
    int state_ = 0;
  };

  bool hear_of_the_end() noexcept;
  static void* at_the_end(void* self, void* arguments) noexcept;
  [[nodiscard]] std::uint32_t walk(std::span<RawFrame> frames) const noexcept;
  [[nodiscard]] std::uint32_t text_of(void* code, const char* attribute,
                                      Names& names) const noexcept;

  struct Api {
    int (*is_initialized)();
    int (*is_finalizing)();  // null before 3.13
    void* (*this_thread_state)();
    void* (*current_thread_state)();
    int (*ensure)();
    void (*release)(int);
    void* (*frame_of)(void*);
    void* (*back)(void*);
    void* (*code)(void*);
    int (*at)(void*);    // null before 3.11
    int (*line)(void*);  // instead
    int (*line_at)(void*, int);
    void* (*attribute)(void*, const char*);
    const char* (*utf8)(void*, std::ptrdiff_t*);
    void* (*encode)(void*, const char*, const char*);
    int (*bytes)(void*, char**, std::ptrdiff_t*);
    void (*clear_error)();
    void (*increase)(void*);
    void (*decrease)(void*);
    void* (*import)(const char*);
    void* (*call)(void*, ...);
    void* (*new_function)(void*, void*, void*);
    void* (*let_go)();
    void (*take_again)(void*);
  };
  Api api_{};
  void* none_ = nullptr;
  bool found_ = false;
  mutable std::atomic<bool> ends_{false};
  mutable std::atomic<int> waiting_{0};  // threads that want the lock
  std::uint64_t text_begin_ = 0, text_bytes_ = 0;
};

}  // namespace pleat::trace
