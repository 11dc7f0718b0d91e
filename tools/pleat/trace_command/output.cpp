#include "output.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <nlohmann/json.hpp>

#include "text.h"

namespace pleat::cli {

TraceOutput::~TraceOutput() {
  if (descriptor_ >= 0 && !path_.empty()) ::close(descriptor_);
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
}

bool TraceOutput::fail(const std::string& shown, std::string_view reason) {
  if (error_.empty())
    error_ = fmt::format("{}: {}", shown == "-" ? shown : shown_path(shown), reason);
  return false;
}

bool TraceOutput::open(const std::string& path, bool force, unsigned mode) {
  if (path == "-") {
    descriptor_ = STDOUT_FILENO;
    return true;
  }
  force_ = force;
  path_ = path;
  struct stat there {};
  if (::lstat(path.c_str(), &there) == 0) {
    if (S_ISDIR(there.st_mode)) return fail(path, std::strerror(EISDIR));
    if (!force) return fail(path, "exists; --force replaces it");
    if (!S_ISREG(there.st_mode)) return fail(path, "is no file that can be replaced");
  }
  for (unsigned attempt = 0; attempt < 100; ++attempt) {
    std::string name = fmt::format("{}.{}.{}.part", path, ::getpid(), attempt);
    descriptor_ = ::open(name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
    if (descriptor_ >= 0) {
      temporary_ = std::move(name);
      return true;
    }
    if (errno != EEXIST) break;
  }
  return fail(path, std::strerror(errno));
}

void TraceOutput::flush() {
  std::string_view left = buffer_;
  while (!left.empty() && !failed()) {
    const ssize_t written = ::write(descriptor_, left.data(), left.size());
    if (written >= 0) {
      left.remove_prefix(static_cast<std::size_t>(written));
    } else if (errno != EINTR) {
      fail(path_.empty() ? "standard output" : path_, std::strerror(errno));
    }
  }
  buffer_.clear();
}

bool TraceOutput::give_name() {
  // Without --force a file that came meanwhile is not replaced, where the file system can tell.
  const unsigned flags = force_ ? 0 : RENAME_NOREPLACE;
  int done = ::renameat2(AT_FDCWD, temporary_.c_str(), AT_FDCWD, path_.c_str(), flags);
  if (done != 0 && (errno == EINVAL || errno == ENOSYS))
    done = std::rename(temporary_.c_str(), path_.c_str());
  if (done == 0) {
    temporary_.clear();
    return true;
  }
  return fail(path_, errno == EEXIST ? "exists; --force replaces it" : std::strerror(errno));
}

bool TraceOutput::close() {
  flush();
  if (path_.empty() || failed()) return !failed();
  const int closed = ::close(descriptor_);
  descriptor_ = -1;
  if (closed != 0 && errno != EINTR) return fail(path_, std::strerror(errno));
  return give_name();
}

// ---- text ---------------------------------------------------------------------------------------

std::string json_text(std::string_view text) {
  using Json = nlohmann::json;
  return Json(text).dump(-1, ' ', false, Json::error_handler_t::replace);
}

void put_json_text(TraceOutput& out, std::string_view text) {
  const auto plain = [](unsigned char c) { return c >= ' ' && c < 0x7f && c != '"' && c != '\\'; };
  for (const char c : text)
    if (!plain(static_cast<unsigned char>(c))) return out.put(json_text(text));
  out.put('"');
  out.put(text);
  out.put('"');
}

void put_csv_field(TraceOutput& out, std::string_view raw) {
  const std::string text = valid_utf8(raw);
  if (text.find_first_of("\",\r\n") == std::string_view::npos) return out.put(text);
  out.put('"');
  for (const char c : text) {
    if (c == '"') out.put('"');
    out.put(c);
  }
  out.put('"');
}

std::string valid_utf8(std::string_view text) {
  const auto is_ascii = [](unsigned char c) { return c < 0x80; };
  bool plain = true;
  for (const char c : text) plain &= is_ascii(static_cast<unsigned char>(c));
  if (plain) return std::string(text);
  return nlohmann::json::parse(json_text(text)).get<std::string>();
}

}  // namespace pleat::cli
