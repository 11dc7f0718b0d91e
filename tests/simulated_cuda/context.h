// Contexts: each device has only its primary context. Each thread has its own current context.
#pragma once

namespace pleat::simulated {

struct Context {
  int device = 0;
  unsigned long long id = 0;
  int holders = 0;      // references to the primary context
  bool active = false;  // the runtime has used it, or a holder exists
};

Context* primary_context(int device);
// The current context of this thread; nullptr: none.
Context* current_context();
void set_current(Context* context);
void push_context(Context* context);
Context* pop_context();  // nullptr: the stack was empty

// The runtime's view: a thread uses device 0 until it selects another one. Its first use makes that
// device's context current.
int context_device();
void need_context();

}  // namespace pleat::simulated
