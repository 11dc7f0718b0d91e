// A merged job in words.
#pragma once

#include "command.h"
#include "gather.h"

namespace pleat::cli {

[[nodiscard]] std::string text_of(const MergedJob& merged);
// True: it was written to stdout.
[[nodiscard]] bool put_merge_json(const MergedJob& merged);

}  // namespace pleat::cli
