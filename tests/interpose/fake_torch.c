/* A stand-in for the parts of torch that libpleat.so deals with, compiled several times:
 *
 *   FAKE_CPU      libtorch_cpu.so: the four functions, under their real names
 *   FAKE_PYTHON   libtorch_python.so: calls them as `import torch` and a training step would
 *   FAKE_BRIDGE   libpleat_bridge_torchX.Y.so: behaves as the environment variable FAKE_BRIDGE says
 *   FAKE_HOST     the interpreter: opens libtorch_python.so and calls it
 *   FAKE_PROGRAM  a C++ program linked to LibTorch
 *
 * The three jumped-through functions have signatures that fill every argument register and the
 * stack; each returns a sum that changes if one argument is lost. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <unistd.h>

#include "torch_bridge/c_abi.h"

#define VISIBLE __attribute__((visibility("default")))

typedef struct Engine {
  const char* name;
} Engine;
typedef Engine* (*engine_stub_fn)(void);

#define ARGUMENTS                                                                         \
  long a, long b, long c, long d, long e, long f, double p, double q, double r, double s, \
      double t, double u, double v, double w, long g, long h
#define VALUES 1, 20, 300, 4000, 50000, 600000, .5, .25, .125, .0625, 3, 5, 7, 11, 7000000, 80000000
#define SUM                                                                                  \
  ((double)(a + 2 * b + 3 * c + 4 * d + 5 * e + 6 * f + 7 * g + 8 * h) + p + 2 * q + 3 * r + \
   4 * s + 5 * t + 6 * u + 7 * v + 8 * w)
typedef double (*jumped_fn)(ARGUMENTS);

VISIBLE void set_default_engine_stub(engine_stub_fn) __asm__(PLEAT_SYMBOL_SET_ENGINE_STUB);
VISIBLE double engine_execute(ARGUMENTS) __asm__(PLEAT_SYMBOL_ENGINE_EXECUTE);
VISIBLE double saved_variable(ARGUMENTS) __asm__(PLEAT_SYMBOL_SAVED_VARIABLE);
VISIBLE double register_hooks(ARGUMENTS) __asm__(PLEAT_SYMBOL_REGISTER_HOOKS);
VISIBLE const char* current_engine(void);

#ifdef FAKE_CPU
static Engine base = {"base"};
static Engine* base_stub(void) { return &base; }
static engine_stub_fn installed = base_stub;
void set_default_engine_stub(engine_stub_fn stub) { installed = stub; }
const char* current_engine(void) { return installed()->name; }
double engine_execute(ARGUMENTS) { return SUM; }
double saved_variable(ARGUMENTS) { return SUM * 2; }
double register_hooks(ARGUMENTS) { return SUM * 3; }
#endif

#if defined(FAKE_PYTHON) || defined(FAKE_PROGRAM)
static void* call_all(void* result) {
  double* const sums = result;
  sums[0] = engine_execute(VALUES);
  sums[1] = saved_variable(VALUES);
  sums[2] = register_hooks(VALUES);
  return NULL;
}

static void train(void) {
  enum { kThreads = 8 };
  double sums[kThreads][3];
  pthread_t threads[kThreads];
  for (int i = 0; i < kThreads; ++i) pthread_create(&threads[i], NULL, call_all, sums[i]);
  for (int i = 0; i < kThreads; ++i) pthread_join(threads[i], NULL);
  for (int i = 1; i < kThreads; ++i)
    if (memcmp(sums[i], sums[0], sizeof sums[0]) != 0) printf("thread %d differs\n", i);
  printf("engine %s\nexecute %.4f\nsaved %.4f\nhooks %.4f\n", current_engine(), sums[0][0],
         sums[0][1], sums[0][2]);
}
#endif

#ifdef FAKE_PYTHON
static Engine first = {"python"};
static Engine second = {"python again"};
static Engine* first_stub(void) { return &first; }
static Engine* second_stub(void) { return &second; }

VISIBLE void import_torch(void) {
  errno = EXDEV;
  set_default_engine_stub(first_stub);
  if (errno != EXDEV) printf("errno changed to %d\n", errno);
  train();
  if (getenv("FAKE_SECOND_CALL") != NULL) {
    set_default_engine_stub(second_stub);
    train();
  }
}
#endif

#ifdef FAKE_BRIDGE
static engine_stub_fn wrapped;
static jumped_fn real_execute, real_saved, real_hooks;
static Engine* bridge_stub(void) {
  static Engine engine;
  static char name[64];
  snprintf(name, sizeof name, "bridge over %s", wrapped != NULL ? wrapped()->name : "default");
  engine.name = name;
  return &engine;
}
static double bridge_execute(ARGUMENTS) {
  return -real_execute(a, b, c, d, e, f, p, q, r, s, t, u, v, w, g, h);
}
static double bridge_saved(ARGUMENTS) {
  return -real_saved(a, b, c, d, e, f, p, q, r, s, t, u, v, w, g, h);
}

VISIBLE const char* pleat_bridge_built_for(void) { return getenv("FAKE_BUILT_FOR"); }

VISIBLE int pleat_bridge_install(const PleatHostFunctions* host, PleatBridgeFunctions* functions) {
  const char* const mode = getenv("FAKE_BRIDGE") != NULL ? getenv("FAKE_BRIDGE") : "";
  errno = ENOTTY;
  if (strcmp(mode, "refuse") == 0) return 7;
  if (host->abi_version != PLEAT_ABI_VERSION || host->struct_size != sizeof *host) return 1;
  if (functions->abi_version != PLEAT_ABI_VERSION || functions->struct_size != sizeof *functions)
    return 1;
  wrapped = (engine_stub_fn)host->engine_stub;
  real_execute = (jumped_fn)host->engine_execute;
  real_saved = (jumped_fn)host->saved_variable_constructor;
  real_hooks = (jumped_fn)host->saved_variable_register_hooks;
  fprintf(stderr, "bridge: interposed %u stub %d set %d hooks %d\n", host->interposed,
          wrapped != NULL, host->set_default_engine_stub != NULL, real_hooks != NULL);
  if (strcmp(mode, "recurse") == 0)
    ((void (*)(engine_stub_fn))dlsym(RTLD_DEFAULT, PLEAT_SYMBOL_SET_ENGINE_STUB))(bridge_stub);
  functions->engine_stub = (void*)bridge_stub;
  functions->engine_execute = (void*)bridge_execute;
  functions->saved_variable_constructor = (void*)bridge_saved;
  functions->saved_variable_register_hooks = NULL; /* leave the real one */
  if (strcmp(mode, "abi") == 0) functions->abi_version = 99;
  if (strcmp(mode, "size") == 0) functions->struct_size += 8;
  return 0;
}
#endif

#ifdef FAKE_HOST
int main(int argc, char** argv) {
  if (argc > 2 && chdir(argv[2]) != 0) return 3;
  printf("secure %lu\n", getauxval(AT_SECURE));
  void* const library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
  if (library == NULL) {
    printf("%s\n", dlerror());
    return 2;
  }
  ((void (*)(void))dlsym(library, "import_torch"))();
  fflush(stdout);
  return 42;
}
#endif

#ifdef FAKE_PROGRAM
int main(void) {
  train();
  fflush(stdout);
  return 43;
}
#endif
