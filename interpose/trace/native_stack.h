// Stacks of native code, by libunwind where the system has it. It is opened, never linked: among
// the libraries that are loaded at the start it would take over C++ exceptions of the whole
// process.
#pragma once

#include <atomic>
#include <cstdint>
#include <span>

#include "interpose/trace/mapped.h"
#include "interpose/trace/ring.h"

namespace pleat::trace {

class NativeStacks {
 public:
  // False: there is no libunwind.
  bool open() noexcept;
  // The frames of this thread, the innermost first, from the one that called into the recorder and
  // the library of `caller`, an address in who asked. Not in two places of a thread at once.
  [[nodiscard]] std::uint32_t walk(std::span<RawFrame> frames, std::uint64_t caller) noexcept;

 private:
  // What a library covers; nothing: it is not known.
  struct Range {
    std::atomic<std::uint64_t> begin{0}, end{0};
    [[nodiscard]] bool holds(std::uint64_t address) const noexcept {
      return address >= begin.load(std::memory_order_relaxed) &&
             address < end.load(std::memory_order_relaxed);
    }
    void look_up(std::uint64_t address) noexcept;
  };
  int (*backtrace_)(void**, int) = nullptr;
  Range own_, callers_;
};

// What is loaded, for the reader, which looks for names. In the writer's thread only.
struct Module {
  std::uint64_t base = 0;  // what the loader adds to its addresses
  std::uint64_t begin = 0, end = 0;
  char path[1024] = {};
  std::uint8_t build_id[20] = {};
  std::uint8_t build_id_bytes = 0;
};

class Modules {
 public:
  bool open() noexcept { return modules_.open(kMost); }
  // The number of the module that `address` lies in; 0: none that is known. Asks the loader where
  // the address is news.
  [[nodiscard]] std::uint32_t at(std::uint64_t address) noexcept;
  [[nodiscard]] std::size_t size() const noexcept { return modules_.size(); }
  [[nodiscard]] const Module& operator[](std::size_t i) const noexcept { return modules_[i]; }

 private:
  static constexpr std::size_t kMost = 4096;
  [[nodiscard]] std::uint32_t find(std::uint64_t address) const noexcept;
  void look() noexcept;
  GrowingArray<Module> modules_;
};

}  // namespace pleat::trace
