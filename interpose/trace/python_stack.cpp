#include "interpose/trace/python_stack.h"

#include <dlfcn.h>
#include <link.h>
#include <sched.h>

namespace pleat::trace {
namespace {

template <class Function>
bool find(const char* name, Function& function) noexcept {
  function = reinterpret_cast<Function>(::dlsym(RTLD_DEFAULT, name));
  return function != nullptr;
}

struct Range {
  std::uint64_t within = 0;
  std::uint64_t begin = 0, bytes = 0;
};

// The executable segment that `within` lies in.
int look_for_range(dl_phdr_info* object, std::size_t /*bytes*/, void* argument) {
  auto& range = *static_cast<Range*>(argument);
  for (int i = 0; i < object->dlpi_phnum; ++i) {
    const auto& header = object->dlpi_phdr[i];
    const std::uint64_t begin = object->dlpi_addr + header.p_vaddr;
    if (header.p_type == PT_LOAD && range.within - begin < header.p_memsz) {
      range.begin = begin;
      range.bytes = header.p_memsz;
      return 1;
    }
  }
  return 0;
}

}  // namespace

bool PythonStacks::open() noexcept {
  if (found_) return true;
  const bool complete =
      find("Py_IsInitialized", api_.is_initialized) &&
      find("PyGILState_GetThisThreadState", api_.this_thread_state) &&
      (find("PyThreadState_GetUnchecked", api_.current_thread_state) ||
       find("_PyThreadState_UncheckedGet", api_.current_thread_state)) &&
      find("PyGILState_Ensure", api_.ensure) && find("PyGILState_Release", api_.release) &&
      find("PyThreadState_GetFrame", api_.frame_of) && find("PyFrame_GetBack", api_.back) &&
      find("PyFrame_GetCode", api_.code) && find("PyFrame_GetLineNumber", api_.line) &&
      find("PyCode_Addr2Line", api_.line_at) && find("PyObject_GetAttrString", api_.attribute) &&
      find("PyUnicode_AsUTF8AndSize", api_.utf8) &&
      find("PyUnicode_AsEncodedString", api_.encode) &&
      find("PyBytes_AsStringAndSize", api_.bytes) && find("PyErr_Clear", api_.clear_error) &&
      find("_Py_NoneStruct", none_) && find("Py_IncRef", api_.increase) &&
      find("Py_DecRef", api_.decrease) && find("PyImport_ImportModule", api_.import) &&
      find("PyObject_CallFunctionObjArgs", api_.call) &&
      find("PyCFunction_NewEx", api_.new_function) && find("PyEval_SaveThread", api_.let_go) &&
      find("PyEval_RestoreThread", api_.take_again);
  if (!complete) return false;
  find("PyFrame_GetLasti", api_.at);
  find("Py_IsFinalizing", api_.is_finalizing) || find("_Py_IsFinalizing", api_.is_finalizing);
  Range range{.within = reinterpret_cast<std::uint64_t>(api_.ensure)};
  ::dl_iterate_phdr(&look_for_range, &range);
  text_begin_ = range.begin;
  text_bytes_ = range.bytes;
  found_ = hear_of_the_end();
  return found_;
}

// A thread that asks for the lock once Python ends is ended, or hangs: whatever it was in the midst
// of. Functions of `atexit` run while other threads can still have the lock.
bool PythonStacks::hear_of_the_end() noexcept {
  struct Method {  // PyMethodDef
    const char* name;
    void* (*function)(void*, void*);
    int flags;
    const char* text;
  };
  constexpr int kNoArguments = 0x0004;  // METH_NOARGS
  static PythonStacks* the_one = nullptr;
  the_one = this;
  static Method method{"pleat_trace_takes_no_more_stacks",
                       [](void*, void*) { return at_the_end(the_one, nullptr); }, kNoArguments,
                       nullptr};
  if (api_.is_initialized() == 0) return false;
  const int state = api_.ensure();
  void* const module = api_.import("atexit");
  void* const registers = module != nullptr ? api_.attribute(module, "register") : nullptr;
  void* const function = api_.new_function(&method, nullptr, nullptr);
  void* const done = registers != nullptr && function != nullptr
                         ? api_.call(registers, function, static_cast<void*>(nullptr))
                         : nullptr;
  const bool heard = done != nullptr;
  for (void* const object : {done, function, registers, module}) {
    if (object != nullptr) api_.decrease(object);
  }
  if (!heard) api_.clear_error();
  api_.release(state);
  return heard;
}

// With the lock held. Returns None.
void* PythonStacks::at_the_end(void* self, void* /*arguments*/) noexcept {
  auto& stacks = *static_cast<PythonStacks*>(self);
  stacks.ends_.store(true, std::memory_order_seq_cst);
  void* const thread = stacks.api_.let_go();
  while (stacks.waiting_.load(std::memory_order_seq_cst) != 0) ::sched_yield();
  stacks.api_.take_again(thread);
  stacks.api_.increase(stacks.none_);
  return stacks.none_;
}

PythonStacks::Lock::Lock(const PythonStacks& stacks, bool may_wait) noexcept : stacks_(stacks) {
  const Api& api = stacks.api_;
  if (!stacks.found_ || api.is_initialized() == 0) return;
  void* const mine = api.this_thread_state();
  if (mine == nullptr) return;
  held_ = api.current_thread_state() == mine;
  if (held_ || !may_wait) return;
  // Whoever asks for the lock while Python ends never gets it.
  if (api.is_finalizing != nullptr && api.is_finalizing() != 0) return;
  stacks.waiting_.fetch_add(1, std::memory_order_seq_cst);
  if (!stacks.ends_.load(std::memory_order_seq_cst)) {
    state_ = api.ensure();
    held_ = taken_ = true;
  } else {
    stacks.waiting_.fetch_sub(1, std::memory_order_seq_cst);
  }
}

PythonStacks::Lock::~Lock() {
  if (taken_) {
    stacks_.api_.release(state_);
    stacks_.waiting_.fetch_sub(1, std::memory_order_seq_cst);
  }
}

std::uint32_t PythonStacks::walk(std::span<RawFrame> frames) const noexcept {
  std::uint32_t count = 0;
  void* frame = api_.frame_of(api_.this_thread_state());
  while (frame != nullptr) {
    if (count < frames.size()) {
      void* const code = api_.code(frame);
      frames[count++] = {reinterpret_cast<std::uint64_t>(code),
                         api_.at != nullptr ? api_.at(frame) : api_.line(frame)};
      api_.decrease(code);  // the frame has it
    }
    void* const caller = count < frames.size() ? api_.back(frame) : nullptr;
    api_.decrease(frame);
    frame = caller;
  }
  return count;
}

std::uint32_t PythonStacks::text_of(void* code, const char* attribute,
                                    Names& names) const noexcept {
  void* const object = api_.attribute(code, attribute);
  std::uint32_t number = 0;
  if (object != nullptr) {
    std::ptrdiff_t bytes = 0;
    if (const char* const text = api_.utf8(object, &bytes)) {
      number = names.text({text, static_cast<std::size_t>(bytes)});
    } else {  // a file's name that is no UTF-8: as Python itself shows it
      api_.clear_error();
      char* shown = nullptr;
      void* const encoded = api_.encode(object, "utf-8", "backslashreplace");
      if (encoded != nullptr && api_.bytes(encoded, &shown, &bytes) == 0)
        number = names.text({shown, static_cast<std::size_t>(bytes)});
      if (encoded != nullptr) api_.decrease(encoded);
    }
    api_.decrease(object);
  }
  if (number == 0) api_.clear_error();
  return number;
}

Frame PythonStacks::describe(const RawFrame& raw, Names& names) noexcept {
  auto* const code = reinterpret_cast<void*>(raw.code);
  api_.increase(code);
  Frame frame;
  frame.name = text_of(code, "co_qualname", names);  // from 3.11 on
  if (frame.name == 0) frame.name = text_of(code, "co_name", names);
  frame.file = text_of(code, "co_filename", names);
  const int line = api_.at != nullptr ? api_.line_at(code, raw.at) : raw.at;
  frame.line = line > 0 ? static_cast<std::uint32_t>(line) : 0;
  return frame;
}

}  // namespace pleat::trace
