// Pleat for C++ programs on LibTorch:
//
//     #include <pleat/torch.h>
//     pleat::enable("bits:4");          // from here on; tensors that exist already are left alone
//     ...
//     std::cerr << pleat::report();
//
// Link Pleat::torch (find_package(Pleat)). A program started with LD_PRELOAD=libpleat.so needs none
// of this. Options are those of PLEAT_CONF. Any thread.
#pragma once

#include <cstddef>
#include <stdexcept>
#include <string>

extern "C" {
int pleat_install_late(void) noexcept;
int pleat_enable(const char* conf, char* error, std::size_t error_bytes) noexcept;
void pleat_disable(void) noexcept;
int pleat_is_enabled(void) noexcept;
std::size_t pleat_stats_json(char* buffer, std::size_t buffer_bytes) noexcept;
std::size_t pleat_report_text(char* buffer, std::size_t buffer_bytes) noexcept;
void pleat_exempt_enter(void) noexcept;
void pleat_exempt_exit(void) noexcept;
}

namespace pleat {

namespace detail {
inline std::string text(std::size_t (*function)(char*, std::size_t)) {
  std::string out(function(nullptr, 0) + 1, '\0');
  const std::size_t needed = function(out.data(), out.size());
  out.resize(needed < out.size() ? needed : out.size() - 1);
  return out;
}
}  // namespace detail

// Switches Pleat on, or changes its options. Throws std::runtime_error, with nothing changed, if
// the bridge refuses or an option is bad.
inline void enable(const std::string& options = {}) {
  if (pleat_install_late() != 0) {
    throw std::runtime_error("pleat: the bridge refused to install; its reason is on stderr");
  }
  char error[512] = {};
  if (pleat_enable(options.c_str(), error, sizeof error) != 0) {
    throw std::runtime_error(std::string("pleat: ") + error);
  }
}

// No further tensor is compressed; what is compressed already stays readable.
inline void disable() noexcept { pleat_disable(); }
[[nodiscard]] inline bool is_enabled() noexcept { return pleat_is_enabled() != 0; }

// All counters as JSON, and the report of verbose:1 as text.
[[nodiscard]] inline std::string stats_json() { return detail::text(&pleat_stats_json); }
[[nodiscard]] inline std::string report() { return detail::text(&pleat_report_text); }

// Tensors saved by this thread during its life are left alone.
class Exempt {
 public:
  Exempt() noexcept { pleat_exempt_enter(); }
  ~Exempt() { pleat_exempt_exit(); }
  Exempt(const Exempt&) = delete;
  Exempt& operator=(const Exempt&) = delete;
};

}  // namespace pleat
