#include "program.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace pleat::cli {

int become(char** command) {
  ::execvp(command[0], command);
  const int error = errno;
  say("pleat: {}: {}\n", command[0], std::strerror(error));
  return error == ENOENT ? kNotFound : kNotExecutable;
}

}  // namespace pleat::cli
