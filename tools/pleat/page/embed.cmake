# Makes a C++ source of the page's files: cmake -DFOLDER=... -DOUTPUT=... -P embed.cmake
# Bytes as numbers: a compiler may refuse a string literal of more than 64 KiB.
function(embed name)
  set(all "")
  foreach(file ${ARGN})
    file(READ "${FOLDER}/${file}" bytes HEX)
    string(APPEND all "${bytes}")
  endforeach()
  string(LENGTH "${all}" digits)
  math(EXPR size "${digits} / 2")
  string(REGEX REPLACE "([0-9a-f][0-9a-f])" "'\\\\x\\1'," bytes "${all}")
  set(code "${code}const char ${name}Bytes[] = {${bytes}};\n" PARENT_SCOPE)
  set(views "${views}extern const std::string_view ${name};\nconst std::string_view ${name}(${name}Bytes, ${size});\n" PARENT_SCOPE)
endfunction()

set(code "")
set(views "")
embed(kPage page.html)
embed(kStyle page.css)
embed(kTraceBody trace.html)
embed(kProfileBody profile.html)
# In the order in which the browser reads them.
embed(kTraceScript base.js tables.js classes.js places.js layers.js flame.js map.js charts.js trace.js)
embed(kProfileScript base.js tables.js lines.js profile.js)
file(WRITE "${OUTPUT}.new" "// Made by embed.cmake.
#include <string_view>

namespace pleat::cli::assets {
namespace {
${code}}  // namespace
${views}}  // namespace pleat::cli::assets
")
file(RENAME "${OUTPUT}.new" "${OUTPUT}")
