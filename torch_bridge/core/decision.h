// A Decision says how a saved tensor is stored, and why: a function that changes its width returns
// a new one, whose trail has one step more. It does not look at values: the codec does, and has the
// last word. Torch-free.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "allocator/lifecycle/record.h"
#include "torch_bridge/core/codec_adapter.h"
#include "torch_bridge/core/reasons.h"

namespace pleat::bridge {

struct Decision {
  using Kept = compress::block::Kept;
  using Steps = compress::block::Steps;
  struct Step {
    Why why{};
    std::uint8_t width = 0;  // as width(), from this step on
  };
  static constexpr std::size_t kMostSteps = 8;

  CodecChoice choice{};  // as if it could bear noise
  Exactness exactness = Exactness::kMayBearNoise;
  bool assigned_exact = false;  // its key is exact; a pass that measures can add noise of `choice`
  bool written = false;         // before one of its saves: it is no operator's result any more
  bool whole = false;           // its saves cover the storage; set at its release
  bool may_be_recomputed = false;  // if the codec finds it to be its argument's function
  allocator::Tier tier = allocator::Tier::kDevice;
  std::optional<allocator::Start> when;  // its encode began; empty: the decision can still change

  [[nodiscard]] std::span<const Step> trail() const noexcept { return {steps_.data(), count_}; }
  // Of the codec; 0: exact, or no values are kept.
  [[nodiscard]] std::uint8_t width() const noexcept {
    const bool exact = exactness != Exactness::kMayBearNoise || assigned_exact;
    return exact ? std::uint8_t{0} : choice.width();
  }
  // True if noise can be added: its values are kept, and can bear it.
  [[nodiscard]] bool may_be_noisy() const noexcept {
    return (exactness == Exactness::kMayBearNoise || exactness == Exactness::kAssigned) &&
           choice.kept == Kept::kValues && choice.bits != 0;
  }
  // The choice for the codec.
  [[nodiscard]] CodecChoice stored() const noexcept {
    if (exactness != Exactness::kMayBearNoise) return compress::block::lossless(choice.type);
    CodecChoice stored = choice;
    stored.bits = choice.width();
    if (stored.steps == Steps::kCurved && stored.bits >= 8) {
      // Only groups with an outlier have steps as wide as that then.
      stored.steps = Steps::kExponent;
    }
    return stored;
  }

  // When the trail is full, Why::kLeftOut stands for the steps before the last one.
  [[nodiscard]] Decision with(Why why, std::uint8_t width) const noexcept {
    Decision next = *this;
    if (count_ == kMostSteps) {
      next.steps_[kMostSteps - 2] = {Why::kLeftOut, steps_[--next.count_].width};
    }
    next.steps_[next.count_++] = {why, width};
    return next;
  }
  // `width` bits are asked for; 0: its key is exact.
  [[nodiscard]] static Decision ask(compress::ElementType type, Why why,
                                    std::uint8_t width) noexcept {
    constexpr std::uint8_t kWhileMeasured = 8;
    Decision asked;
    asked.choice = {.type = type, .bits = width != 0 ? width : kWhileMeasured};
    asked.assigned_exact = width == 0;
    return asked.with(why, width);
  }
  // Only this of the values is kept, at no width.
  [[nodiscard]] Decision keeping(Why why, Kept kept,
                                 const compress::Sides& sides = {}) const noexcept {
    Decision next = *this;
    next.choice = {.type = choice.type, .kept = kept, .sides = sides};
    next.count_ = 0;
    return next.with(why, 0);
  }
  // It has at least so many bits, however few are asked for.
  [[nodiscard]] Decision raised(Why why, std::uint8_t floor) const noexcept {
    Decision next = *this;
    next.choice.floor = std::max(choice.floor, floor);
    return floor <= choice.floor || assigned_exact ? next : next.with(why, next.width());
  }
  // The first reason holds.
  [[nodiscard]] Decision exact(Exactness why) const noexcept {
    if (exactness != Exactness::kMayBearNoise || why == Exactness::kMayBearNoise) return *this;
    Decision next = with(static_cast<Why>(why), 0);
    next.exactness = why;
    return next;
  }
  // The more careful of two saves of one storage, with its trail.
  [[nodiscard]] Decision merged(const Decision& other) const noexcept {
    const bool others = count_ == 0 || other.care() > care();
    Decision next = others ? other : *this;
    const std::uint8_t width = next.width();
    next.choice = merge(choice, other.choice);
    next.assigned_exact = assigned_exact || other.assigned_exact;
    next.written = written || other.written;
    return next.width() == width ? next : next.with(Why::kSeveralSaves, next.width());
  }
  // Its storage is released. `proven`: no proof is outstanding. `argument`: of the payload that it
  // may be recomputed from; null: none.
  [[nodiscard]] Decision released(allocator::Start start, bool proven,
                                  const Decision* argument) const noexcept {
    const bool in_time = start != allocator::Start::kShortage;
    Decision next = proven ? *this : exact(in_time ? Exactness::kNoProof : Exactness::kNoRoom);
    next.choice.bits = choice.width();
    if (assigned_exact) next = next.exact(Exactness::kAssigned);
    next.when = start;
    next.may_be_recomputed = argument != nullptr && !written && whole && argument->whole &&
                             as_good(next.stored(), argument->stored());
    return next;
  }
  // Its payload has values of `bits` bits; 0: exact. `learned`: by those of earlier payloads.
  [[nodiscard]] Decision encoded(std::uint8_t bits, bool learned) const noexcept {
    if (width() == 0 || count_ == 0 || steps_[count_ - 1].width == bits) return *this;
    const Steps steps = stored().steps;
    return with(learned                   ? Why::kLesson
                : steps == Steps::kAny    ? Why::kValues
                : steps == Steps::kCurved ? Why::kWideSteps
                                          : Why::kWideExponents,
                bits);
  }

 private:
  // As good as its own payload: as many bits, and no reader that needs more.
  static bool as_good(const CodecChoice& own, const CodecChoice& argument) noexcept {
    using compress::block::Look;
    return own.bits != 0 && own.kept == Kept::kValues && own.steps != Steps::kExponent &&
           !own.near_zero && !own.sides.any() && own.lines.look <= Look::kParts &&
           own.type == argument.type && (argument.bits == 0 || argument.bits >= own.bits);
  }
  // More for the more careful of two saves.
  [[nodiscard]] int care() const noexcept {
    constexpr int kExact = 100;
    if (exactness != Exactness::kMayBearNoise) return kExact + 1;
    if (choice.kept != Kept::kValues) return static_cast<int>(choice.kept);
    return width() == 0 ? kExact : 2 + width();
  }

  std::array<Step, kMostSteps> steps_{};
  std::uint8_t count_ = 0;
};

}  // namespace pleat::bridge
