#include "torch_bridge/core/code_pages.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <link.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <string_view>

namespace pleat::bridge {
namespace {

struct Search {
  std::string_view library;
  CodeRange found;
};

int find_code(dl_phdr_info* info, std::size_t, void* context) {
  auto& search = *static_cast<Search*>(context);
  if (!std::string_view(info->dlpi_name).ends_with(search.library)) {
    return 0;
  }
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const ElfW(Phdr)& header = info->dlpi_phdr[i];
    if (header.p_type == PT_LOAD && (header.p_flags & PF_X) != 0 && (header.p_flags & PF_W) == 0) {
      search.found.begin = info->dlpi_addr + header.p_vaddr;
      search.found.end = search.found.begin + header.p_filesz;
      return 1;
    }
  }
  return 1;
}

}  // namespace

std::string path_of_this_library() {
  Dl_info info{};
  const bool known = ::dladdr(reinterpret_cast<const void*>(&path_of_this_library), &info) != 0;
  return known && info.dli_fname != nullptr ? info.dli_fname : std::string();
}

CodeRange code_of(const char* library) noexcept {
  Search search{library, {}};
  ::dl_iterate_phdr(&find_code, &search);
  return search.found;
}

TransientCodePages::TransientCodePages(const char* library) noexcept {
  const CodeRange code = code_of(library);
  const long page = ::sysconf(_SC_PAGESIZE);
  if (page <= 0 || code.begin == code.end) {
    return;
  }
  page_bytes_ = static_cast<std::size_t>(page);
  begin_ = code.begin & ~(page_bytes_ - 1);
  try {
    pages_ = (code.end - begin_) / page_bytes_;  // whole pages of the file
    before_ = mapped();
  } catch (...) {
    before_.clear();
  }
}

TransientCodePages::~TransientCodePages() {
  if (before_.empty()) {
    return;
  }
  try {
    const std::vector<bool> after = mapped();
    const auto is_new = [&](std::size_t i) { return after[i] && !before_[i]; };
    for (std::size_t i = 0; i < after.size();) {
      std::size_t end = i;
      while (end < after.size() && is_new(end)) {
        ++end;
      }
      if (end > i) {
        ::madvise(reinterpret_cast<void*>(begin_ + i * page_bytes_), (end - i) * page_bytes_,
                  MADV_DONTNEED);
      }
      i = end + 1;
    }
  } catch (...) {  // no memory for the list: the pages stay
  }
}

std::vector<bool> TransientCodePages::mapped() const {
  constexpr std::uint64_t kPresent = std::uint64_t{1} << 63, kOfFile = std::uint64_t{1} << 61;
  std::vector<bool> result;
  const int pagemap = ::open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
  if (pagemap < 0) {
    return result;
  }
  try {
    std::vector<std::uint64_t> entries(std::min<std::size_t>(pages_, 8192));
    result.reserve(pages_);
    while (result.size() < pages_) {
      const std::size_t wanted =
          std::min(entries.size(), pages_ - result.size()) * sizeof entries[0];
      const auto from =
          static_cast<off_t>((begin_ / page_bytes_ + result.size()) * sizeof entries[0]);
      if (::pread(pagemap, entries.data(), wanted, from) != static_cast<ssize_t>(wanted)) {
        result.clear();
        break;
      }
      for (std::size_t i = 0; i < wanted / sizeof entries[0]; ++i) {
        result.push_back((entries[i] & kPresent) != 0 && (entries[i] & kOfFile) != 0);
      }
    }
  } catch (...) {
    ::close(pagemap);
    throw;
  }
  ::close(pagemap);
  return result;
}

}  // namespace pleat::bridge
