#include "interpose/trace/top_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>

namespace pleat::trace {
namespace {

constexpr std::uint64_t kEveryNs = 500'000'000;
constexpr std::size_t kMostBlocks = 50'000;  // with more, lines would cost too much

// Field 22 of /proc/self/stat; 0: it cannot be read.
std::uint64_t process_start() noexcept {
  const int file = ::open("/proc/self/stat", O_RDONLY | O_CLOEXEC);
  if (file < 0) return 0;
  std::array<char, 1024> text{};
  const ssize_t bytes = ::read(file, text.data(), text.size() - 1);
  ::close(file);
  const char* at = bytes > 0 ? std::strrchr(text.data(), ')') : nullptr;  // behind the name
  for (int field = 2; at != nullptr && field < 22; ++field) {
    at = std::strchr(at, ' ');
    if (at != nullptr) ++at;
  }
  return at != nullptr ? std::strtoull(at, nullptr, 10) : 0;
}

// Ours, and nobody else's to look into.
bool is_private(int folder) noexcept {
  struct stat facts {};
  return ::fstat(folder, &facts) == 0 && S_ISDIR(facts.st_mode) && facts.st_uid == ::geteuid() &&
         (facts.st_mode & 077) == 0;
}

// A page that an earlier process with our number has left.
bool is_stale(int folder, const char* name) noexcept {
  const int file = ::openat(folder, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
  if (file < 0) return false;
  struct stat facts {};
  std::array<char, sizeof kTopMagic> magic{};
  const bool stale =
      ::fstat(file, &facts) == 0 && S_ISREG(facts.st_mode) && facts.st_uid == ::geteuid() &&
      ::read(file, magic.data(), magic.size()) == static_cast<ssize_t>(magic.size()) &&
      std::memcmp(magic.data(), kTopMagic, magic.size()) == 0;
  ::close(file);
  return stale;
}

void copy(TopMoment& to, const Totals& from, std::uint64_t time_ns, std::uint64_t step,
          std::uint8_t phase, std::int64_t resident, std::int64_t small) noexcept {
  to.time_ns = time_ns;
  to.step = step;
  to.phase = phase;
  to.resident = resident;
  to.small = small;
  std::copy(from.sums.begin(), from.sums.end(), to.sums);
  std::copy(from.bytes.begin(), from.bytes.end(), to.classes);
}

}  // namespace

// ---- the file -----------------------------------------------------------------------------------

void TopFile::create(std::uint64_t start_ns) noexcept {
  pid_ = ::getpid();
  updated_at_ = 0;
  bool made = false;
  for (unsigned which = 0; which < kTopFolders && !made; ++which) {
    std::array<char, 4096> folder;
    made = top_folder(which, std::getenv("XDG_RUNTIME_DIR"), ::geteuid(), folder.data(),
                      folder.size()) &&
           create_in(folder.data(), which == kTopFolders - 1);
  }
  if (!made) return;
  begin_change();
  std::memcpy(page_->magic, kTopMagic, sizeof kTopMagic);
  page_->version = kTopVersion;
  page_->page_bytes = sizeof(TopPage);
  page_->pid = static_cast<std::uint64_t>(pid_);
  page_->process_start = process_start();
  page_->start_ns = start_ns;
  page_->lines_device = -1;
  end_change();
  there_.store(true, std::memory_order_release);
}

bool TopFile::create_in(const char* path, bool make) noexcept {
  if (make) ::mkdir(path, 0700);
  const int folder = ::open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (folder < 0) return false;
  std::array<char, 64> name;
  bool made = false;
  if (is_private(folder) && top_file(pid_, name.data(), name.size())) {
    constexpr int kFlags = O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC;
    int file = ::openat(folder, name.data(), kFlags, 0600);
    if (file < 0 && errno == EEXIST && is_stale(folder, name.data()) &&
        ::unlinkat(folder, name.data(), 0) == 0) {
      file = ::openat(folder, name.data(), kFlags, 0600);
    }
    if (file >= 0) {
      made = map(file);
      if (!made) ::unlinkat(folder, name.data(), 0);
      ::close(file);
    }
  }
  ::close(folder);
  if (made) std::snprintf(path_, sizeof path_, "%s/%s", path, name.data());
  return made;
}

bool TopFile::map(int file) noexcept {
  // Room that is promised now: a disk that is full later must not end the job.
  if (::posix_fallocate(file, 0, sizeof(TopPage)) != 0) return false;
  struct stat facts {};
  ::fstat(file, &facts);
  void* const at = ::mmap(nullptr, sizeof(TopPage), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (at == MAP_FAILED) return false;
  device_ = facts.st_dev;
  inode_ = facts.st_ino;
  page_ = static_cast<TopPage*>(at);
  return true;
}

void TopFile::end() noexcept {
  if (page_ != nullptr) {
    begin_change();
    page_->ended = 1;
    end_change();
  }
  remove();
  if (page_ != nullptr) ::munmap(page_, sizeof(TopPage));
  page_ = nullptr;
}

void TopFile::remove() noexcept {
  if (!there_.exchange(false, std::memory_order_acq_rel) || ::getpid() != pid_) return;
  struct stat facts {};
  if (::lstat(path_, &facts) == 0 && facts.st_dev == device_ && facts.st_ino == inode_)
    ::unlink(path_);
}

void TopFile::abandon() noexcept {
  there_.store(false, std::memory_order_relaxed);
  if (page_ != nullptr) ::munmap(page_, sizeof(TopPage));
  page_ = nullptr;
}

// ---- what is in it ------------------------------------------------------------------------------

void TopFile::begin_change() noexcept {
  std::atomic_ref<std::uint64_t>(page_->sequence).fetch_add(1, std::memory_order_acq_rel);
}
void TopFile::end_change() noexcept {
  std::atomic_ref<std::uint64_t>(page_->sequence).fetch_add(1, std::memory_order_release);
}

void TopFile::update(LiveBook& book, BookLines& lines, std::uint64_t now_ns) noexcept {
  if (page_ == nullptr || now_ns - updated_at_ < kEveryNs) return;
  updated_at_ = now_ns;
  const auto small = static_cast<std::int64_t>(book.small().bytes);
  begin_change();
  page_->devices = 0;
  page_->lines_device = -1;
  page_->inexact = book.exact() ? 0 : 1;
  book.for_each_device([&](int index, BookDevice& device) {
    if (device.now.live() > book.device(page_->lines_device).now.live())
      page_->lines_device = index;
    if (page_->devices == kTopDevices) return;
    TopDevice& told = page_->device[page_->devices++];
    told.device = index;
    copy(told.now, device.now, now_ns, book.step(), book.phase(), book.resident(), small);
    const BookPeak& peak = device.peak;
    copy(told.peak, peak.totals, peak.time_ns, peak.step, peak.phase, peak.resident, peak.small);
  });
  put_lines(book.device(page_->lines_device), lines);
  end_change();
}

void TopFile::put_lines(BookDevice& device, BookLines& lines) noexcept {
  page_->lines = 0;
  if (device.blocks.size() > kMostBlocks) return;
  std::array<LineGroup, kTopLines> groups;
  std::size_t all = 0;
  page_->lines = static_cast<std::uint32_t>(lines.largest(device, groups, &all));
  for (std::uint32_t i = 0; i < page_->lines; ++i) {
    TopLine& line = page_->line[i];
    line.bytes = groups[i].bytes;
    line.count = groups[i].count;
    line.of = static_cast<std::uint32_t>(groups[i].of);
    lines.write_text(groups[i].op, line.op);
    lines.write(groups[i].frame, line.line);
  }
}

}  // namespace pleat::trace
