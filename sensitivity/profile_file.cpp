// Profiles in files. Refuses what could hold something else, or never end.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <system_error>
#include <utility>

#include "sensitivity/profile.h"

namespace pleat::sensitivity {
namespace {

constexpr std::size_t kFirstBytes = std::size_t{64} << 10;
constexpr unsigned kMostAttempts = 100;

[[nodiscard]] std::string reason(int error) { return std::generic_category().message(error); }

class Descriptor {
 public:
  explicit Descriptor(int number) noexcept : number_(number) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() {
    if (number_ >= 0) {
      ::close(number_);
    }
  }
  [[nodiscard]] int number() const noexcept { return number_; }
  // A late write, as over a network, can fail only here.
  [[nodiscard]] bool close() noexcept { return ::close(std::exchange(number_, -1)) == 0; }

 private:
  int number_;
};

// A file beside the one that is to be replaced, which it vanishes without.
class Beside {
 public:
  explicit Beside(const std::string& path) {
    const std::string start =
        path.substr(0, path.rfind('/') + 1) + ".pleat-profile-" + std::to_string(::getpid()) + '-';
    for (unsigned attempt = 0; attempt < kMostAttempts && number_ < 0; ++attempt) {
      path_ = start + std::to_string(attempt);
      number_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
      if (number_ < 0 && errno != EEXIST) {
        break;
      }
    }
  }
  Beside(const Beside&) = delete;
  Beside& operator=(const Beside&) = delete;
  ~Beside() {
    if (number_ >= 0) {
      ::unlink(path_.c_str());
    }
  }
  [[nodiscard]] int number() const noexcept { return number_; }
  [[nodiscard]] bool rename_to(const std::string& path) noexcept {
    if (::rename(path_.c_str(), path.c_str()) != 0) {
      return false;
    }
    number_ = -1;  // nothing to unlink
    return true;
  }

 private:
  std::string path_;
  int number_ = -1;  // the caller closes it
};

// Appends what follows in the file until `text` has `size` bytes or the file ends. Returns errno.
[[nodiscard]] int read_until(int file, std::size_t size, std::string& text) {
  while (text.size() < size) {
    const std::size_t before = text.size();
    text.resize(std::min(size, before + std::max(kFirstBytes, before)));
    const ssize_t got = ::read(file, text.data() + before, text.size() - before);
    const int error = got < 0 ? errno : 0;
    text.resize(before + (got > 0 ? static_cast<std::size_t>(got) : 0));
    if (got == 0) {
      return 0;
    }
    if (error != 0 && error != EINTR) {
      return error;
    }
  }
  return 0;
}

[[nodiscard]] bool write_all(int file, std::string_view text) {
  while (!text.empty()) {
    const ssize_t put = ::write(file, text.data(), text.size());
    if (put < 0 && errno != EINTR) {
      return false;
    }
    text.remove_prefix(put > 0 ? static_cast<std::size_t>(put) : 0);
  }
  return true;
}

[[nodiscard]] ReadResult failed(ReadStatus status, std::string message) {
  return {status, {}, std::move(message)};
}

[[nodiscard]] ReadResult refused(int error) {
  return failed(error == ENOENT ? ReadStatus::kMissing : ReadStatus::kUnreadable, reason(error));
}

}  // namespace

ReadResult read_profile(const std::string& path) {
  constexpr auto kForeign = ReadStatus::kForeign;
  if (path.find('\0') != std::string::npos) {
    return failed(ReadStatus::kUnreadable, "its name has a zero byte");
  }
  struct stat facts = {};
  // To open a device can act on it.
  if (::stat(path.c_str(), &facts) != 0) {
    return refused(errno);
  }
  if (!S_ISREG(facts.st_mode)) {
    return failed(kForeign, "it is not a regular file");
  }
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (file.number() < 0 || ::fstat(file.number(), &facts) != 0) {
    return refused(errno);
  }
  if (!S_ISREG(facts.st_mode)) {
    return failed(kForeign, "it is not a regular file");
  }
  if (facts.st_size > static_cast<off_t>(kMostProfileBytes)) {
    return failed(kForeign, std::string(kTooLargeProfile));
  }
  std::string text;
  if (const int error = read_until(file.number(), kMostProfileBytes + 1, text); error != 0) {
    return failed(ReadStatus::kUnreadable, reason(error));
  }
  return from_json(text);
}

std::string write_profile(const Profile& profile, const std::string& path) {
  struct stat facts = {};
  if (::lstat(path.c_str(), &facts) == 0 && S_ISLNK(facts.st_mode)) {
    return "it is a link: left as it is";
  }
  const ReadResult present = read_profile(path);
  if (present.status != ReadStatus::kMissing && present.status != ReadStatus::kOk) {
    return present.message + ": left as it is";
  }
  const std::string text = to_json(profile);
  if (const ReadResult again = from_json(text); again.status != ReadStatus::kOk) {
    return "not written, as it could not be read again: " + again.message;
  }
  Beside beside(path);
  Descriptor file(beside.number());
  if (file.number() < 0) {
    return "no file can be made beside it: " + reason(errno);
  }
  if (!write_all(file.number(), text) || !file.close()) {
    return "a file beside it cannot be written: " + reason(errno);
  }
  return beside.rename_to(path) ? std::string() : "it cannot be replaced: " + reason(errno);
}

}  // namespace pleat::sensitivity
