// Looks up Python's documented C API (3.10 and later) in the process: the bridge does not link
// Python. All functions except api() need the interpreter's lock.
#pragma once

#include <cstddef>
#include <string_view>
#include <utility>

namespace pleat::bridge::python {

// Result, name, parameters.
#define PLEAT_PYTHON_FUNCTIONS(ROW)                                   \
  ROW(int, Py_IsInitialized, ())                                      \
  ROW(void*, PyGILState_GetThisThreadState, ())                       \
  ROW(int, PyGILState_Ensure, ())                                     \
  ROW(int, PyGILState_Check, ())                                      \
  ROW(int, Py_AddPendingCall, (int (*)(void*), void*))                \
  ROW(void, PyGILState_Release, (int))                                \
  ROW(void*, PyEval_GetFrame, ())                                     \
  ROW(void*, PyFrame_GetBack, (void*))                                \
  ROW(void*, PyFrame_GetCode, (void*))                                \
  ROW(int, PyFrame_GetLineNumber, (void*))                            \
  ROW(void*, PyObject_GetAttrString, (void*, const char*))            \
  ROW(void*, PyObject_CallObject, (void*, void*))                     \
  ROW(const char*, PyUnicode_AsUTF8AndSize, (void*, std::ptrdiff_t*)) \
  ROW(void, Py_IncRef, (void*))                                       \
  ROW(void, Py_DecRef, (void*))                                       \
  ROW(void, PyErr_Fetch, (void**, void**, void**))                    \
  ROW(void, PyErr_Restore, (void*, void*, void*))                     \
  ROW(int, PyErr_GivenExceptionMatches, (void*, void*))               \
  ROW(void, PyErr_SetInterrupt, ())                                   \
  ROW(void*, PyDict_New, ())                                          \
  ROW(void*, PyDict_GetItemString, (void*, const char*))              \
  ROW(std::ptrdiff_t, PyDict_Size, (void*))                           \
  ROW(int, PyDict_SetItemString, (void*, const char*, void*))         \
  ROW(void*, PyImport_ImportModule, (const char*))                    \
  ROW(void*, PyImport_AddModule, (const char*))                       \
  ROW(void*, PyModule_GetDict, (void*))                               \
  ROW(void*, Py_CompileString, (const char*, const char*, int))       \
  ROW(void*, PyEval_EvalCode, (void*, void*, void*))                  \
  ROW(void*, PyCFunction_NewEx, (void*, void*, void*))                \
  ROW(void*, Py_BuildValue, (const char*, ...))                       \
  ROW(long, PyLong_AsLong, (void*))

struct Api {
#define PLEAT_PYTHON_MEMBER(result, name, parameters) result(*name) parameters;
  PLEAT_PYTHON_FUNCTIONS(PLEAT_PYTHON_MEMBER)
#undef PLEAT_PYTHON_MEMBER
  void** PyExc_Exception;
  void** PyExc_KeyboardInterrupt;
  bool complete = true;

  Api() noexcept;
};
[[nodiscard]] const Api& api() noexcept;

// The interpreter's lock, for a thread that Python has registered. Preserves a pending error.
class Lock {
 public:
  Lock() noexcept;
  ~Lock();
  Lock(const Lock&) = delete;
  Lock& operator=(const Lock&) = delete;
  [[nodiscard]] explicit operator bool() const noexcept { return held_; }

 private:
  int state_ = 0;
  bool held_ = false;
  void* error_[3] = {};
};

// A counted reference, dropped at the end. Under the lock.
class Object {
 public:
  explicit Object(void* owned) noexcept : object_(owned) {}
  ~Object() { reset(nullptr); }
  Object(Object&& other) noexcept : object_(std::exchange(other.object_, nullptr)) {}
  Object& operator=(Object&& other) noexcept {
    reset(std::exchange(other.object_, nullptr));
    return *this;
  }
  Object(const Object&) = delete;
  Object& operator=(const Object&) = delete;
  void reset(void* owned) noexcept {
    if (void* const old = std::exchange(object_, owned); old != nullptr) api().Py_DecRef(old);
  }
  [[nodiscard]] void* get() const noexcept { return object_; }
  // The text of a str; empty for other types.
  [[nodiscard]] std::string_view text() const noexcept;

 private:
  void* object_;
};

// Calls visit(frame, code) for the frames of this thread, from the innermost on, until it returns
// true. Under the lock.
template <class Visit>
void visit_frames(const Visit& visit) {
  const Api& python = api();
  void* const innermost = python.PyEval_GetFrame();
  if (innermost == nullptr) return;
  python.Py_IncRef(innermost);
  for (Object frame(innermost); frame.get() != nullptr;
       frame.reset(python.PyFrame_GetBack(frame.get()))) {
    const Object code(python.PyFrame_GetCode(frame.get()));
    if (visit(frame.get(), code.get())) return;
  }
}

// Clears a pending error, under the lock; a KeyboardInterrupt is raised again in the script.
void forget_error() noexcept;

// The variables of a program that has yet to run: Python's builtins. With a name, those of the
// module of this name, which is created if it does not exist. Null: memory is short.
[[nodiscard]] Object new_globals(const char* module = nullptr) noexcept;
// Runs a program on its variables. False if it fails; forget_error() clears its error.
bool run(const char* program, const Object& globals) noexcept;
// The same, but leaves the error pending.
bool run_or_raise(const char* program, const Object& globals) noexcept;
// A variable of a program; null: no such variable.
[[nodiscard]] Object variable(const Object& globals, const char* name) noexcept;

}  // namespace pleat::bridge::python
