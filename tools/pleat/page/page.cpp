#include "page.h"

#include <fmt/format.h>
#include <strings.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <vector>

#include "tools/pleat/installation.h"
#include "torch_bridge/core/option_text.h"

namespace pleat::cli {

// The files of this folder, made part of the program by embed.cmake.
namespace assets {
extern const std::string_view kPage, kStyle, kTraceBody, kProfileBody, kTraceScript, kProfileScript;
}  // namespace assets

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

// For text of HTML. Control characters become '?', invalid UTF-8 U+FFFD.
std::string escaped(std::string_view text) {
  // JSON's writer replaces invalid UTF-8.
  const std::string valid = Json::parse(bridge::json_string(text)).get<std::string>();
  std::string out;
  for (const char c : valid) {
    if (c == '&' || c == '<' || c == '>')
      out += fmt::format("&#{};", static_cast<unsigned>(c));
    else
      out += static_cast<unsigned char>(c) < 0x20 || c == 0x7f ? '?' : c;
  }
  return out;
}

// As JSON that may stand inside <script>, whatever its names are.
std::string script_json(const Json& data) {
  const std::string plain = data.dump(-1, ' ', true, Json::error_handler_t::replace);
  // All that is not ASCII is escaped already. These three stand in strings only, and must not end
  // the element or begin a comment.
  std::string safe;
  safe.reserve(plain.size() + plain.size() / 64);
  for (const char c : plain) {
    if (c == '<' || c == '>' || c == '&')
      safe += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
    else
      safe += c;
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

std::string make_page(PageOf of, std::string_view title, const Json& data,
                      std::string_view plotly) {
  const bool is_trace = of == PageOf::kTrace;
  const std::string_view page = assets::kPage;
  const std::string json = script_json(data);
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
    if (name == "BODY") html += is_trace ? assets::kTraceBody : assets::kProfileBody;
    if (name == "DATA") html += json;
    if (name == "PLOTLY") html += script(plotly);
    if (name == "SCRIPT") html += script(is_trace ? assets::kTraceScript : assets::kProfileScript);
    at = end + 2;
  }
}

}  // namespace pleat::cli
