#include "interpose/trace/names.h"

#include <cstring>

namespace pleat::trace {
namespace {

thread_local bool has_lock = false;

}  // namespace

Names::Lock::Lock(Names& names) noexcept : names_(names) {
  if (has_lock) return;
  ::pthread_mutex_lock(&names_.mutex_);
  has_lock = held_ = true;
}

Names::Lock::~Lock() {
  if (!held_) return;
  has_lock = false;
  ::pthread_mutex_unlock(&names_.mutex_);
}

bool Names::open() noexcept {
  if (bytes_ == nullptr) bytes_ = static_cast<char*>(map_zeros(kMostTextBytes));
  return bytes_ != nullptr && texts_.open(kMostTexts) && frames_.open(kMostFramesInAll) &&
         raw_frames_.open(kMostFramesInAll) && frame_of_raw_.open(kMostFramesInAll) &&
         stacks_.open(kMostStacks);
}

std::uint64_t Names::hash_of(std::string_view text) noexcept {
  std::uint64_t hash = 0xcbf29ce484222325u;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return mixed(hash);
}

std::uint32_t Names::text(std::string_view text) noexcept {
  text = text.substr(0, kMostStringBytes);
  const auto find = [&] {
    return text_index_.find(hash_of(text),
                            [&](std::uint32_t number) { return text_at(number - 1) == text; });
  };
  if (const std::uint32_t found = find(); found != 0) return found;
  const Lock lock(*this);
  if (!lock) return 0;
  const std::uint32_t found = find();
  return found != 0 ? found : add_text(text);
}

std::uint32_t Names::add_text(std::string_view text) noexcept {
  const std::size_t at = bytes_used_;
  if (text.size() <= kMostTextBytes - at) {
    std::memcpy(bytes_ + at, text.data(), text.size());
    if (texts_.add({static_cast<std::uint32_t>(at), static_cast<std::uint32_t>(text.size())})) {
      bytes_used_ += text.size();
      const auto number = static_cast<std::uint32_t>(texts_.size());
      text_index_.add(hash_of(text), number,
                      [&](std::uint32_t old) { return hash_of(text_at(old - 1)); });
      return number;
    }
  }
  refused_.fetch_add(1, std::memory_order_relaxed);
  return 0;
}

std::uint32_t Names::add_stack(std::uint32_t parent, const RawFrame& raw,
                               std::uint32_t frame) noexcept {
  if (!stacks_.add({parent, frame, raw})) {
    refused_.fetch_add(1, std::memory_order_relaxed);
    return 0;
  }
  const auto number = static_cast<std::uint32_t>(stacks_.size());
  stack_index_.add(hash_of(parent, raw), number, [&](std::uint32_t old) {
    return hash_of(stacks_[old - 1].parent, stacks_[old - 1].raw);
  });
  return number;
}

std::uint32_t Names::find_frame(const RawFrame& raw) const noexcept {
  const std::uint32_t seen = frame_index_.find(
      hash_of(raw), [&](std::uint32_t number) { return raw_frames_[number - 1] == raw; });
  return seen != 0 ? frame_of_raw_[seen - 1] : 0;
}

// A line has several places in its code: they are one frame.
std::uint32_t Names::add_frame(const RawFrame& raw, const Frame& frame) noexcept {
  std::uint32_t number = line_index_.find(
      hash_of(frame), [&](std::uint32_t known) { return frames_[known - 1] == frame; });
  if (number == 0) {
    if (!frames_.add(frame)) {
      refused_.fetch_add(1, std::memory_order_relaxed);
      return 0;
    }
    number = static_cast<std::uint32_t>(frames_.size());
    line_index_.add(hash_of(frame), number,
                    [&](std::uint32_t old) { return hash_of(frames_[old - 1]); });
  }
  if (frame_of_raw_.add(number) && raw_frames_.add(raw)) {
    frame_index_.add(hash_of(raw), static_cast<std::uint32_t>(raw_frames_.size()),
                     [&](std::uint32_t old) { return hash_of(raw_frames_[old - 1]); });
  }
  return number;
}

}  // namespace pleat::trace
