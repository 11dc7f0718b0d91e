#include "trace_report_page.h"

#include <strings.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <utility>
#include <vector>

#include "installation.h"
#include "svg_chart.h"
#include "trace_report_assets.h"

namespace pleat::cli {
namespace fs = std::filesystem;
namespace {

constexpr const char* kPlotly = "plotly.min.js";

// As built or installed; as installed by pip, in the package or beside its environment's bin.
std::vector<fs::path> plotly_places() {
  std::vector<fs::path> places;
  std::error_code error;
  const fs::path executable = fs::read_symlink("/proc/self/exe", error);
  if (!error)
    places.push_back(executable.parent_path().parent_path() / "share" / "pleat" / kPlotly);
  const Installation installation = find_installation();
  if (!installation.library.empty())
    places.push_back(installation.library.parent_path().parent_path() / "share" / "pleat" /
                     kPlotly);
  return places;
}

// A script must not end its element or begin a comment; in strings and patterns <\/ is </.
std::string script(std::string_view source) {
  std::string safe;
  safe.reserve(source.size() + 64);
  for (std::size_t i = 0; i < source.size(); ++i) {
    safe += source[i];
    if (source[i] != '<') continue;
    const std::string_view after = source.substr(i + 1, 7);
    const bool ends = after.size() == 7 && ::strncasecmp(after.data(), "/script", 7) == 0;
    if (ends || after.starts_with("!--")) safe += '\\';
  }
  return safe;
}

class Descriptor {
 public:
  explicit Descriptor(int number) : number_(number) {}
  ~Descriptor() {
    if (number_ >= 0) ::close(number_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  [[nodiscard]] int number() const noexcept { return number_; }
  [[nodiscard]] bool close() noexcept { return ::close(std::exchange(number_, -1)) == 0; }

 private:
  int number_;
};

bool write_all(int file, std::string_view content) {
  while (!content.empty()) {
    const ssize_t written = ::write(file, content.data(), content.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return false;
    content.remove_prefix(static_cast<std::size_t>(written));
  }
  return true;
}

}  // namespace

std::string load_plotly() {
  for (const fs::path& place : plotly_places()) {
    std::ifstream file(place, std::ios::binary);
    if (!file) continue;
    std::string source(std::istreambuf_iterator<char>(file), {});
    // A page with part of it would show less than a page without.
    if (file.bad() || source.find("plotly.js v") == std::string::npos) continue;
    return source;
  }
  return {};
}

std::string report_page(std::string_view title, std::string_view json, std::string_view plotly) {
  const std::string_view page = assets::kPage;
  std::string html;
  html.reserve(page.size() + json.size() + plotly.size() + (1u << 17));
  std::size_t at = 0;
  while (true) {
    const std::size_t mark = page.find("@@", at);
    html += page.substr(at, mark - at);
    if (mark == std::string_view::npos) return html;
    const std::size_t end = page.find("@@", mark + 2);
    const std::string_view name = page.substr(mark + 2, end - mark - 2);
    if (name == "TITLE") html += escaped(title);
    if (name == "STYLE") html += assets::kStyle;
    if (name == "DATA") html += json;
    if (name == "PLOTLY") html += script(plotly);
    if (name == "SCRIPT") html += script(assets::kScript);
    at = end + 2;
  }
}

std::string write_whole(const std::string& path, std::string_view content, bool replace) {
  constexpr const char* kThere = "exists; --force replaces it";
  std::error_code error;
  if (fs::is_directory(path, error)) return std::strerror(EISDIR);
  const bool there = fs::exists(fs::symlink_status(path, error));
  if (there && !replace) return kThere;
  std::string temporary = path + ".XXXXXX";
  Descriptor file(::mkstemp(temporary.data()));
  if (file.number() < 0) return std::strerror(errno);
  // Who may read the trace may read the page: mkstemp's mode, the owner only, is the trace's too.
  bool written = write_all(file.number(), content);
  int why = errno;
  if (!file.close() && written) {
    written = false;
    why = errno;
  }
  // link() refuses a name that was taken meanwhile; file systems without it have rename().
  if (written && !replace) {
    written = ::link(temporary.c_str(), path.c_str()) == 0;
    why = errno;
    if (written || why == EEXIST) {
      ::unlink(temporary.c_str());
      return written ? "" : kThere;
    }
    written = ::rename(temporary.c_str(), path.c_str()) == 0;
    why = errno;
  } else if (written) {
    written = ::rename(temporary.c_str(), path.c_str()) == 0;
    why = errno;
  }
  if (written) return {};
  ::unlink(temporary.c_str());
  return std::strerror(why);
}

}  // namespace pleat::cli
