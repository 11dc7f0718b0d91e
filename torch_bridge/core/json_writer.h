// Writes JSON, value by value. Torch-free.
#pragma once

#include <atomic>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <string>
#include <utility>

#include "torch_bridge/core/option_text.h"

namespace pleat::bridge {

// Names are fixed and need no escaping; texts are escaped. In a list a value has no name.
class Json {
 public:
  Json& open(const char* name = nullptr) { return open(name, '{'); }
  Json& close() { return close('}'); }
  Json& open_list(const char* name = nullptr) { return open(name, '['); }
  Json& close_list() { return close(']'); }
  Json& field(const char* name, std::int64_t value) {
    key(name);
    text_ += std::to_string(value);
    return *this;
  }
  Json& field(const char* name, const std::atomic<std::uint64_t>& value) {
    return field(name, static_cast<std::int64_t>(value.load(std::memory_order_relaxed)));
  }
  // NaN and infinity become null.
  Json& number(const char* name, double value) {
    key(name);
    char digits[32] = "null";
    if (std::isfinite(value)) {
      std::snprintf(digits, sizeof digits, "%.6g", value);
    }
    text_ += digits;
    return *this;
  }
  Json& truth(const char* name, bool value) {
    key(name);
    text_ += value ? "true" : "false";
    return *this;
  }
  Json& text(const char* name, const std::string& value) {
    key(name);
    text_ += json_string(value);
    return *this;
  }
  [[nodiscard]] std::string take() { return std::move(text_); }

 private:
  Json& open(const char* name, char bracket) {
    key(name);
    text_ += bracket;
    first_ = true;
    return *this;
  }
  Json& close(char bracket) {
    text_ += bracket;
    first_ = false;
    return *this;
  }
  void key(const char* name) {
    if (!first_) {
      text_ += ',';
    }
    first_ = false;
    if (name != nullptr) {
      text_ += '"';
      text_ += name;
      text_ += "\":";
    }
  }
  std::string text_;
  bool first_ = true;
};

}  // namespace pleat::bridge
