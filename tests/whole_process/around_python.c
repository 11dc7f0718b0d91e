// A LibTorch program that allocates before Python is up, while it runs, and after it is finalised.
// Linked by test_trace_edges.py, without torch's headers: tensors by their C interface.
// Usage: around_python BRIDGE [LIBPYTHON SECOND_TRACE]; PLEAT_CONF names the first trace.
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

extern int aoti_torch_empty_strided(int64_t, const int64_t*, const int64_t*, int32_t, int32_t,
                                    int32_t, void**);
extern int aoti_torch_delete_tensor_object(void*);

// A tensor of `kib` KiB. Python calls this, too.
void* make(int kib) {
  const int64_t sizes[] = {kib, 256}, strides[] = {256, 1};
  void* tensor = NULL;
  if (aoti_torch_empty_strided(2, sizes, strides, 6 /* float32 */, 0, 0, &tensor) != 0) abort();
  return tensor;
}
static void drop(void* tensor) {
  if (aoti_torch_delete_tensor_object(tensor) != 0) abort();
}

static atomic_int turns_in_c, turns_from_python;
static void* for_ever(int kib, atomic_int* turns) {
  for (;;) {
    drop(make(kib));
    atomic_fetch_add(turns, 1);
    usleep(500);
  }
}
static void* in_a_thread_of_c(void* unused) { return for_ever(100, &turns_in_c); }
void in_a_thread_of_python(void) { for_ever(200, &turns_from_python); }

static void* made_elsewhere(void* unused) { return make(1100); }

static void wait_for_turns(void) {
  const int in_c = turns_in_c, from_python = turns_from_python;
  for (int i = 0; i < 2000 && (turns_in_c < in_c + 3 || turns_from_python < from_python + 3); ++i)
    usleep(1000);
}

static void* find(void* library, const char* name) {
  void* const found = library != NULL ? dlsym(library, name) : NULL;
  if (found == NULL) {
    fprintf(stderr, "%s\n", dlerror());
    exit(3);
  }
  return found;
}

int main(int argc, char** argv) {
  pthread_t thread;
  void* tensor = NULL;
  pthread_create(&thread, NULL, made_elsewhere, NULL);
  pthread_join(thread, &tensor);
  drop(tensor);  // made there, freed here
  make(1200);
  pthread_create(&thread, NULL, in_a_thread_of_c, NULL);
  if (argc < 4) return 0;

  void* const bridge = dlopen(argv[1], RTLD_NOW | RTLD_NOLOAD);
  void* const python = dlopen(argv[2], RTLD_NOW | RTLD_GLOBAL);
  ((void (*)(int))find(python, "Py_InitializeEx"))(0);
  int (*const stop)(void) = (int (*)(void))find(bridge, "pleat_trace_stop");
  if (stop() != 1) return 4;
  int (*const start)(const char*, char*, size_t) =
      (int (*)(const char*, char*, size_t))find(bridge, "pleat_trace_start");
  char error[1000];
  if (start(argv[3], error, sizeof error) != 0) return 5;
  const int failed = ((int (*)(const char*))find(python, "PyRun_SimpleString"))(
      "import ctypes, threading\n"
      "here = ctypes.CDLL(None)\n"
      "def from_python():\n"
      "    here.make(1300)\n"
      "from_python()\n"
      "threading.Thread(target=here.in_a_thread_of_python, daemon=True).start()\n");
  if (failed) return 6;
  wait_for_turns();
  if (((int (*)(void))find(python, "Py_FinalizeEx"))() != 0) return 7;
  wait_for_turns();
  make(1400);
  wait_for_turns();
  return 0;
}
