#include "interpose/trace/out_of_memory_report.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdarg>
#include <cstdio>

#include "interpose/trace/book_figures.h"

namespace pleat::trace {
namespace {

constexpr std::size_t kLines = 10;  // of the table by line

class SizeText {
 public:
  explicit SizeText(std::int64_t bytes) noexcept { write_size(bytes, text_); }
  [[nodiscard]] const char* c_str() const noexcept { return text_.data(); }

 private:
  std::array<char, 32> text_;
};

// "12.5 %"; of nothing: "".
class ShareText {
 public:
  ShareText(std::int64_t part, std::int64_t all) noexcept {
    if (all <= 0 || part < 0) return;
    const auto tenths = static_cast<std::int64_t>(
        static_cast<double>(part) / static_cast<double>(all) * 1000 + 0.5);
    std::snprintf(text_.data(), text_.size(), "%lld.%lld %%", static_cast<long long>(tenths / 10),
                  static_cast<long long>(tenths % 10));
  }
  [[nodiscard]] const char* c_str() const noexcept { return text_.data(); }

 private:
  std::array<char, 32> text_{};
};

class DeviceText {
 public:
  explicit DeviceText(int index) noexcept {
    std::snprintf(text_.data(), text_.size(), index < 0 ? "host" : "cuda:%d", index);
  }
  [[nodiscard]] const char* c_str() const noexcept { return text_.data(); }

 private:
  std::array<char, 16> text_;
};

}  // namespace

void OutOfMemoryReport::put(const char* format, ...) noexcept {
  const std::size_t room = text_.size() - size_;
  va_list arguments;
  va_start(arguments, format);
  const int wanted = std::vsnprintf(text_.data() + size_, room, format, arguments);
  va_end(arguments);
  if (wanted > 0) size_ += std::min(static_cast<std::size_t>(wanted), room - 1);
}

void OutOfMemoryReport::head(LiveBook& book, int index, const BookDevice& device) noexcept {
  const Changes& sums = device.now.sums;
  put("  %s: live %s, reserved %s", DeviceText(index).c_str(), SizeText(device.now.live()).c_str(),
      SizeText(sums[PLEAT_TRACE_RESERVED]).c_str());
  if (index < 0 && book.resident() > 0)
    put(", resident %s of the process", SizeText(book.resident()).c_str());
  put("; the most live was %s, in step %llu\n", SizeText(device.peak.totals.live()).c_str(),
      static_cast<unsigned long long>(device.peak.step));
}

void OutOfMemoryReport::classes(LiveBook& book, int index, const BookDevice& device) noexcept {
  const Totals& now = device.now;
  for (std::size_t i = 0; i < kByteClasses; ++i) {
    if (now.bytes[i] <= 0) continue;
    const std::string_view name = kClassNames[i];
    const bool so_far = static_cast<ByteClass>(i) == ByteClass::kTemporary;
    put("  %-18.*s %12s %9s\n", so_far ? 18 : static_cast<int>(name.size()),
        so_far ? "temporary (so far)" : name.data(), SizeText(now.bytes[i]).c_str(),
        ShareText(now.bytes[i], now.live()).c_str());
  }
  const auto beside = [&](const char* name, std::int64_t bytes) {
    if (bytes > 0) put("  + %-16s %12s\n", name, SizeText(bytes).c_str());
  };
  beside("slack", now.sums[PLEAT_TRACE_ACTIVE] - now.live());
  beside("cached", now.sums[PLEAT_TRACE_RESERVED] - now.sums[PLEAT_TRACE_ACTIVE]);
  if (index >= 0) return;
  beside("small", static_cast<std::int64_t>(book.small().bytes));
  beside("other", book.other());
}

void OutOfMemoryReport::largest(BookDevice& device, BookLines& lines) noexcept {
  std::array<LineGroup, kLines> groups;
  std::size_t all = 0;
  const std::size_t count = lines.largest(device, groups, &all);
  if (count == 0) return;
  put("  %12s %9s %7s  %-15s %-24s %s\n", "largest", "of live", "blocks", "class", "operator",
      "line");
  for (std::size_t i = 0; i < count; ++i) {
    const LineGroup& group = groups[i];
    std::array<char, 25> op;
    std::array<char, 61> line;
    lines.write_text(group.op, op);
    lines.write(group.frame, line);
    put("  %12s %9s %7llu  %-15s %-24s %s\n", SizeText(group.bytes).c_str(),
        ShareText(group.bytes, device.now.live()).c_str(),
        static_cast<unsigned long long>(group.count), class_name(group.of).data(), op.data(),
        line.data());
  }
  if (all > count) put("  and %zu more\n", all - count);
}

void OutOfMemoryReport::saved(BookDevice& device) noexcept {
  const SavedBytes saved = saved_bytes(device);
  if (saved.now <= 0) return;
  const std::int64_t live = device.now.live();
  put("  saved for backward, and not in use: %s; at 8 bits %s (live %s), at 4 bits %s (live %s)\n",
      SizeText(saved.now).c_str(), SizeText(saved.at_8_bits).c_str(),
      SizeText(live - saved.now + saved.at_8_bits).c_str(), SizeText(saved.at_4_bits).c_str(),
      SizeText(live - saved.now + saved.at_4_bits).c_str());
  if (saved.not_known > 0)
    put("  of these %s are counted as they are: what they would take is not known\n",
        SizeText(saved.not_known).c_str());
}

void OutOfMemoryReport::compose(LiveBook& book, BookLines& lines, std::string_view title,
                                int device, const char* moment, const char* path) noexcept {
  size_ = 0;
  put("pleat: %.*s\n", static_cast<int>(std::min<std::size_t>(title.size(), 400)), title.data());
  const std::string_view phase = phase_name(book.phase());
  put("  step %llu, %.*s%s\n", static_cast<unsigned long long>(book.step()),
      static_cast<int>(phase.size()), phase.data(),
      book.exact() ? "" : "; some of what lives is not known, for want of memory");
  int others = 0;
  book.for_each_device([&](int index, BookDevice& one) {
    if (index != device && one.now.live() == 0 && one.now.sums[PLEAT_TRACE_RESERVED] == 0) return;
    if (index != device && ++others > 4) return;
    head(book, index, one);
    if (index != device) return;
    classes(book, index, one);
    largest(one, lines);
    saved(one);
  });
  put("pleat trace summary --at %s %.*s says more\n", moment, 1024, path);
}

void write_to_stderr(std::string_view text) noexcept {
  constexpr std::size_t kPiece = 4096;  // fits where poll() says that there is room in a pipe
  while (!text.empty()) {
    pollfd ready{STDERR_FILENO, POLLOUT, 0};
    const int count = ::poll(&ready, 1, 500);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0 || (ready.revents & POLLOUT) == 0) return;
    const ssize_t written = ::write(STDERR_FILENO, text.data(), std::min(text.size(), kPiece));
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return;
    text.remove_prefix(static_cast<std::size_t>(written));
  }
}

}  // namespace pleat::trace
