#include "lines.h"

#include <fmt/format.h>

namespace pleat::trace {

Source Lines::source(std::uint32_t file) {
  if (file > definitions_.last_string()) return source_of("?");
  if (sources_.empty()) sources_.assign(definitions_.last_string() + std::size_t{1}, 255);
  if (sources_[file] == 255)
    sources_[file] = static_cast<std::uint8_t>(source_of(definitions_.string(file)));
  return static_cast<Source>(sources_[file]);
}

// The libraries that write traces stand in native stacks, too.
bool Lines::is_of_pleat(const Frame& frame) const noexcept {
  if (frame.kind != FrameKind::kNative) return false;
  const Module* const module = definitions_.module(frame.name);
  return module != nullptr &&
         definitions_.text(module->path).find("/libpleat") != std::string_view::npos;
}

std::uint32_t Lines::frame_of(std::uint32_t stack) {
  if (stack == 0 || stack > definitions_.last_stack()) return 0;
  if (frames_.empty()) frames_.assign(definitions_.last_stack() + std::size_t{1}, kNone);
  if (frames_[stack] != kNone) return frames_[stack];
  std::uint32_t innermost = 0;
  std::uint32_t innermost_python = 0;
  std::uint32_t package = 0;
  std::uint32_t user = 0;
  definitions_.walk(stack, [&](std::uint32_t id) {
    const Frame* const frame = definitions_.frame(id);
    if (innermost == 0 && (frame == nullptr || !is_of_pleat(*frame))) innermost = id;
    if (frame == nullptr || frame->kind != FrameKind::kPython) return true;
    if (innermost_python == 0) innermost_python = id;
    const Source whose = source(frame->file);
    if (whose == Source::kPackage && package == 0) package = id;
    if (whose == Source::kUser) user = id;
    return user == 0;
  });
  for (const std::uint32_t found : {user, package, innermost_python, innermost})
    if (found != 0) return frames_[stack] = first_like(found);
  return frames_[stack] = 0;
}

std::uint32_t Lines::first_like(std::uint32_t id) {
  const Frame* const frame = definitions_.frame(id);
  if (frame == nullptr) return id;
  if (like_.empty()) like_.assign(definitions_.last_frame() + std::size_t{1}, kNone);
  if (like_[id] == kNone) like_[id] = find_like(id, *frame);
  return like_[id];
}

std::uint32_t Lines::find_like(std::uint32_t id, const Frame& frame) {
  if (const std::string_view function = function_of(frame); !function.empty())
    return first_of_.try_emplace({frame.name, std::string(function)}, id).first->second;
  return first_.try_emplace({frame.kind, frame.name, frame.file, frame.where}, id).first->second;
}

std::string_view Lines::function_of(const Frame& frame) const {
  if (symbols_ == nullptr || frame.kind != FrameKind::kNative) return {};
  return symbols_->name(frame.name, frame.where);
}

std::string Lines::text_with(std::uint32_t id, bool whole_path) const {
  const Frame* const frame = definitions_.frame(id);
  if (frame == nullptr) return "?";
  const bool python = frame->kind == FrameKind::kPython;
  const Module* const module = python ? nullptr : definitions_.module(frame->name);
  std::string_view path = python              ? definitions_.string(frame->file)
                          : module != nullptr ? definitions_.text(module->path)
                                              : std::string_view("?");
  if (!whole_path) path = path.substr(path.rfind('/') + 1);
  if (path.empty()) path = "?";
  if (!python) {
    const std::string_view function = function_of(*frame);
    if (!function.empty()) return fmt::format("{} ({})", function, path);
    return fmt::format("{}+{:#x}", path, frame->where);
  }
  return fmt::format("{}:{} {}", path, frame->where, definitions_.string(frame->name));
}

std::string Lines::text(std::uint32_t frame) const { return text_with(frame, false); }
std::string Lines::long_text(std::uint32_t frame) const { return text_with(frame, true); }

}  // namespace pleat::trace
