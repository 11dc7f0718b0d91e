// Where an export or a report goes. A file appears under its name once it is whole: until then it
// is a temporary beside it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

namespace pleat::cli {

// Modes of files, before the umask: like any file of the user's; the owner's only, as a trace is.
inline constexpr unsigned kUsersMode = 0666, kOwnersMode = 0600;

class TraceOutput {
 public:
  TraceOutput() = default;
  ~TraceOutput();  // without close(): removes the file
  TraceOutput(const TraceOutput&) = delete;
  TraceOutput& operator=(const TraceOutput&) = delete;

  // "-": stdout. False: error() says why.
  [[nodiscard]] bool open(const std::string& path, bool force, unsigned mode);
  // Writes what is left and gives the file its name. False: error() says why.
  [[nodiscard]] bool close();
  // There is nothing to write: the file will not appear.
  void give_up(std::string reason) { error_ = std::move(reason); }
  // One line with the path.
  [[nodiscard]] const std::string& error() const noexcept { return error_; }
  [[nodiscard]] bool failed() const noexcept { return !error_.empty(); }

  // After a failure nothing more is written.
  void put(std::string_view text) {
    buffer_.append(text);
    if (buffer_.size() >= kBufferBytes) flush();
  }
  void put(char byte) { buffer_.push_back(byte); }

 private:
  static constexpr std::size_t kBufferBytes = 1u << 18;

  void flush();
  bool fail(const std::string& shown, std::string_view reason);
  [[nodiscard]] bool give_name();

  std::string path_, temporary_;  // empty: stdout
  int descriptor_ = -1;
  bool force_ = false;
  std::string buffer_;
  std::string error_;
};

// ---- text ---------------------------------------------------------------------------------------

// With its quotes; invalid UTF-8 is replaced.
void put_json_text(TraceOutput& out, std::string_view text);
[[nodiscard]] std::string json_text(std::string_view text);
// A field of RFC 4180, in quotes where it needs them.
void put_csv_field(TraceOutput& out, std::string_view text);
// Without bytes that are no UTF-8: each of these becomes U+FFFD.
[[nodiscard]] std::string valid_utf8(std::string_view text);

}  // namespace pleat::cli
