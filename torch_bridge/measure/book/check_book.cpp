#include "torch_bridge/measure/book/check_book.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>

#include "torch_bridge/core/json_writer.h"

namespace pleat::bridge {

const char* verdict_name(Verdict verdict) noexcept {
  switch (verdict) {
    case Verdict::kGood:
      return "good";
    case Verdict::kSmall:
      return "small";
    case Verdict::kSurprise:
      return "surprise";
    case Verdict::kUnsteady:
      return "unsteady";
    case Verdict::kNotFinite:
      return "not_finite";
  }
  return "?";
}

GradientErrors& GradientErrors::operator+=(const GradientErrors& other) noexcept {
  gradient += other.gradient;
  noisy += other.noisy;
  yardstick += other.yardstick;
  repeated += other.repeated;
  batch += other.batch;
  pairs += other.pairs;
  return *this;
}

Verdict judge(const GradientErrors& errors, double largest, unsigned bits) noexcept {
  constexpr double kSmallest = 1e-3;  // of the largest gradient
  constexpr double kSteady = 1e-3;
  constexpr double kOfYardstick = 3.5;
  constexpr double kLittle = 0.2;
  constexpr double kMuch = 0.5;
  constexpr unsigned kUsual = 4;
  const double norm = std::sqrt(errors.gradient);
  if (norm <= kSmallest * std::sqrt(largest)) {
    return Verdict::kSmall;
  }
  const double repeated = std::sqrt(errors.repeated) / norm;
  if (!(repeated <= kSteady)) {
    return Verdict::kUnsteady;
  }
  // Steps are this many times as wide as at 4 bits.
  const double wider =
      bits == 0 || bits >= kUsual ? 1 : (std::exp2(kUsual) - 1) / (std::exp2(bits) - 1);
  const double noisy = std::sqrt(errors.noisy) / norm;
  const double yardstick = std::sqrt(errors.yardstick) / norm;
  const bool beyond = noisy > kOfYardstick * yardstick && noisy > kLittle * wider;
  const bool much = noisy > kMuch * wider;
  return beyond || much || !std::isfinite(noisy) ? Verdict::kSurprise : Verdict::kGood;
}

void CheckBook::ask(unsigned passes, std::string file) {
  const std::lock_guard<std::mutex> guard(mutex_);
  asked_ = passes;
  file_ = std::move(file);
  watching_.store(passes > looked_at_, std::memory_order_relaxed);
}

std::uint32_t CheckBook::place(const std::string& text) noexcept {
  try {
    const std::lock_guard<std::mutex> guard(mutex_);
    const auto [at, is_new] =
        place_numbers_.emplace(text, static_cast<std::uint32_t>(places_.size()) + 1);
    if (is_new) {
      places_.push_back(text);
    }
    return at->second;
  } catch (...) {
    return 0;
  }
}

void CheckBook::add_exactness(Exactness why, std::uint32_t at, std::size_t bytes) noexcept {
  if (!watching()) {
    return;
  }
  try {
    const std::lock_guard<std::mutex> guard(mutex_);
    Stored& stored = stored_[{at, why}];
    ++stored.storages;
    stored.bytes += bytes;
  } catch (...) {  // no memory to count with
  }
}

void CheckBook::add_pass(std::span<const Parameter> parameters, unsigned bits) {
  const std::lock_guard<std::mutex> guard(mutex_);
  bits_ = bits;
  std::map<std::string, unsigned> of_name;
  for (const Parameter& parameter : parameters) {
    std::string key;
    if (parameter.leaf == nullptr) {
      key = parameter.name + '#' + std::to_string(of_name[parameter.name]++);
    }
    const auto [at, is_new] = row_of_.emplace(std::pair(parameter.leaf, key), rows_.size());
    if (is_new) {
      rows_.emplace_back().keeps_address = parameter.keeps_address;
    }
    Row& row = rows_[at->second];
    if (row.name.empty()) {
      row.name = parameter.name;
    }
    const GradientErrors& errors = parameter.errors;
    if (std::isfinite(errors.gradient)) {
      row.errors += errors;
      ++row.passes;
    }
  }
  ++looked_at_;
  if (looked_at_ >= asked_) {
    watching_.store(false, std::memory_order_relaxed);
  }
  write_locked();
}

void CheckBook::add_refusal(const std::string& why) {
  constexpr std::size_t kMost = 16;
  const std::lock_guard<std::mutex> guard(mutex_);
  const bool known = refusals_.contains(why);
  if (known || refusals_.size() < kMost) {
    ++refusals_[why];
  }
  if (!known) {
    write_locked();  // the process may end in a way that tells nobody
  }
}

void CheckBook::finish() noexcept {
  try {
    const std::lock_guard<std::mutex> guard(mutex_);
    if (asked_ != 0 && looked_at_ < asked_) {
      write_locked();
    }
    watching_.store(false, std::memory_order_relaxed);
  } catch (...) {  // the process ends
  }
}

std::string CheckBook::json() {
  const std::lock_guard<std::mutex> guard(mutex_);
  return json_locked();
}

std::string CheckBook::json_locked() const {
  double largest = 0;
  for (const Row& row : rows_) {
    largest = std::max(largest, row.passes != 0 ? row.errors.gradient / row.passes : 0);
  }
  Json json;
  json.open().field("pid", ::getpid()).field("asked", asked_).field("passes", looked_at_);
  json.field("bits", bits_);
  json.open_list("refused");
  for (const auto& [why, passes] : refusals_) {
    json.open().text("why", why).field("passes", passes).close();
  }
  json.close_list().open_list("parameters");
  for (const Row& row : rows_) {
    const double passes = row.passes;
    const double norm = std::sqrt(row.errors.gradient);
    const Verdict verdict =
        row.passes == 0 ? Verdict::kNotFinite : judge(row.errors, largest * passes, bits_);
    const auto part = [&](double squares) { return norm > 0 ? std::sqrt(squares) / norm : 0; };
    json.open()
        .text("name", row.name)
        .field("passes", row.passes)
        .number("norm", row.passes != 0 ? std::sqrt(row.errors.gradient / passes) : NAN)
        .number("error", part(row.errors.noisy))
        .number("yardstick", part(row.errors.yardstick))
        .number("repetition", part(row.errors.repeated))
        .number("batch",
                row.errors.pairs != 0 ? part(row.errors.batch / row.errors.pairs * passes) : NAN)
        .text("verdict", verdict_name(verdict))
        .close();
  }
  json.close_list().open_list("saved");
  for (const auto& [key, stored] : stored_) {
    const auto& [at, why] = key;
    json.open()
        .text("why", exactness_name(why))
        .text("place", at != 0 ? places_[at - 1] : std::string("unknown"))
        .field("storages", static_cast<std::int64_t>(stored.storages))
        .field("bytes", static_cast<std::int64_t>(stored.bytes))
        .close();
  }
  json.close_list().close();
  return json.take();
}

void CheckBook::write_locked() {
  if (file_.empty()) {
    return;
  }
  const std::string line = json_locked() + '\n';
  const int file = ::open(file_.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
  if (file < 0) {
    return;  // `pleat check` misses the line, and says so
  }
  // One write, so that lines of several processes do not mix.
  [[maybe_unused]] const ssize_t done = ::write(file, line.data(), line.size());
  ::close(file);
}

}  // namespace pleat::bridge
