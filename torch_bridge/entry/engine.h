// Where autograd meets us: an Engine that wraps the one in force and offers our saved-tensor hooks
// where Python's own have nothing to say.
#pragma once

namespace pleat::bridge {

// The stub of the wrapping engine, for torch's set_default_engine_stub(). `engine_stub`: of the
// engine to wrap; null: the default engine in force now. Once.
[[nodiscard]] void* wrap_engine(void* engine_stub);

// Wraps Python's engine in place of the one wrapped first. For a C++ program that was served before
// main and embeds Python later.
void rewrap_engine(void* engine_stub);

}  // namespace pleat::bridge
