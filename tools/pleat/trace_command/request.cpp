#include "request.h"

#include "text.h"
#include "tools/pleat/program.h"

namespace pleat::cli {

int trouble(std::string_view line) {
  say("pleat: {}\n", line);
  return kTraceTrouble;
}

int trouble(const std::string& path, std::string_view why) {
  return trouble(shown_path(path) + ": " + std::string(why));
}

}  // namespace pleat::cli
