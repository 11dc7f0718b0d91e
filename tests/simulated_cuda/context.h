// Contexts: each device has its primary one and no other. Which is current is a matter of the
// thread.
#pragma once

namespace pleat::simulated {

struct Context {
  int device = 0;
  unsigned long long id = 0;
  int holders = 0;      // of the primary context
  bool active = false;  // the runtime has used it, or somebody holds it
};

Context* primary_context(int device);
// The current one of this thread; nullptr: none.
Context* current_context();
void set_current(Context* context);
void push_context(Context* context);
Context* pop_context();  // nullptr: none was there

// The runtime's view: a thread works on device 0 until it says otherwise, and its first need makes
// that device's context current.
int context_device();
void need_context();

}  // namespace pleat::simulated
