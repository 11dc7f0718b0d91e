// Finds code in Python that is about to differentiate gradients, before it does so.
#pragma once

namespace pleat::bridge {

// The innermost code object among those that this thread runs which passes create_graph=True,
// itself or in a function that it names. Null: none. Compare only: the object can die. Takes the
// interpreter's lock, so the caller must hold no lock of Pleat's.
[[nodiscard]] const void* code_that_creates_graph() noexcept;

}  // namespace pleat::bridge
