#include "page.h"

#include <strings.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <vector>

#include "assets.h"
#include "tools/pleat/installation.h"
#include "tools/pleat/svg_chart.h"

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

}  // namespace pleat::cli
