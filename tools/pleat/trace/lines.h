// The line of a stack at which a person would look: the innermost of the program's own sources.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "definitions.h"
#include "interpose/trace/source_of_path.h"
#include "symbols.h"

namespace pleat::trace {

class Lines {
 public:
  // `symbols`: null: native frames are places in modules.
  explicit Lines(const Definitions& definitions, Symbols* symbols = nullptr)
      : definitions_(definitions), symbols_(symbols) {}

  // The frame's id; 0: the stack has none.
  //   The innermost Python frame of the program; else of a package; else the
  //   innermost of all but Pleat's own.
  [[nodiscard]] std::uint32_t frame_of(std::uint32_t stack);
  // The first frame that is of the same function and line: a recorder may number one twice. Of
  // native frames the function counts where its name is known, else the offset.
  [[nodiscard]] std::uint32_t first_like(std::uint32_t frame);
  // "train.py:12 forward"; "at::native::add (libtorch_cpu.so)", or
  // "libtorch_cpu.so+0x1a2b" where the function is not known; "?" if nothing is.
  [[nodiscard]] std::string text(std::uint32_t frame) const;
  // As above, with the whole path.
  [[nodiscard]] std::string long_text(std::uint32_t frame) const;

 private:
  [[nodiscard]] std::string text_with(std::uint32_t frame, bool whole_path) const;
  // Empty: it is none of a native frame that is known.
  [[nodiscard]] std::string_view function_of(const Frame& frame) const;
  [[nodiscard]] std::uint32_t find_like(std::uint32_t id, const Frame& frame);
  [[nodiscard]] Source source(std::uint32_t file);
  [[nodiscard]] bool is_of_pleat(const Frame& frame) const noexcept;

  const Definitions& definitions_;
  Symbols* symbols_;
  using FrameKey = std::tuple<FrameKind, std::uint32_t, std::uint32_t, std::uint64_t>;
  std::map<FrameKey, std::uint32_t> first_;
  std::map<std::pair<std::uint32_t, std::string>, std::uint32_t> first_of_;  // module, function
  std::vector<std::uint32_t> frames_;  // by stack; kNone: not looked for yet
  std::vector<std::uint32_t> like_;    // by frame; the same
  std::vector<std::uint8_t> sources_;  // by string; 255: not looked at yet
};

}  // namespace pleat::trace
