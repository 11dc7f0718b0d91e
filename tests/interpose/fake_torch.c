/* A stand-in for the parts of torch that libpleat.so deals with, compiled several times:
 *
 *   FAKE_CPU      libtorch_cpu.so: every function of PLEAT_HOOKS, under its real name
 *   FAKE_PYTHON   libtorch_python.so: calls them as `import torch` and a training step would
 *   FAKE_BRIDGE   libpleat_bridge_torchX.Y.so: behaves as the environment variable FAKE_BRIDGE says
 *   FAKE_HOST     the interpreter: opens libtorch_python.so and calls it
 *   FAKE_PROGRAM  a C++ program linked to LibTorch
 *
 * All jumped-through functions have signatures that fill every argument register and the stack.
 * Each returns a sum of its own that changes if one argument is lost. */
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
#define DECLARE(hook, symbol) VISIBLE double hook##_(ARGUMENTS) __asm__(symbol);
#define DECLARE_OTHER(hook, symbol) DECLARE(OTHER_##hook, symbol)
PLEAT_HOOKS(DECLARE, DECLARE_OTHER, DECLARE)
#define NUMBER(hook, symbol) NUMBER_##hook,
#define NUMBER_OTHER(hook, symbol) NUMBER_OTHER_##hook,
enum { PLEAT_HOOKS(NUMBER, NUMBER_OTHER, NUMBER) HOOKS };
VISIBLE const char* current_engine(void);

#ifdef FAKE_CPU
static Engine base = {"base"};
static Engine* base_stub(void) { return &base; }
static engine_stub_fn installed = base_stub;
void set_default_engine_stub(engine_stub_fn stub) { installed = stub; }
const char* current_engine(void) { return installed()->name; }
#define DEFINE(hook, symbol) \
  double hook##_(ARGUMENTS) { return SUM * (NUMBER_##hook + 1); }
#define DEFINE_OTHER(hook, symbol) DEFINE(OTHER_##hook, symbol)
PLEAT_HOOKS(DEFINE, DEFINE_OTHER, DEFINE)
#endif

#if defined(FAKE_PYTHON) || defined(FAKE_PROGRAM)
#define NAME(hook, symbol) #hook,
#define NAME_OTHER(hook, symbol) "OTHER_" #hook,
static const char* const names[] = {PLEAT_HOOKS(NAME, NAME_OTHER, NAME)};

static void* call_all(void* result) {
  double* sum = result;
#define CALL(hook, symbol) *sum++ = hook##_(VALUES);
#define CALL_OTHER(hook, symbol) CALL(OTHER_##hook, symbol)
  PLEAT_HOOKS(CALL, CALL_OTHER, CALL)
  return NULL;
}

static void train(void) {
  enum { kThreads = 8 };
  double sums[kThreads][HOOKS];
  pthread_t threads[kThreads];
  for (int i = 0; i < kThreads; ++i) pthread_create(&threads[i], NULL, call_all, sums[i]);
  for (int i = 0; i < kThreads; ++i) pthread_join(threads[i], NULL);
  for (int i = 1; i < kThreads; ++i)
    if (memcmp(sums[i], sums[0], sizeof sums[0]) != 0) printf("thread %d differs\n", i);
  printf("engine %s\n", current_engine());
  for (int i = 0; i < HOOKS; ++i) printf("%s %.4f\n", names[i], sums[0][i]);
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
static PleatHostFunctions real;
static Engine* bridge_stub(void) {
  static Engine engine;
  static char name[64];
  snprintf(name, sizeof name, "bridge over %s", wrapped != NULL ? wrapped()->name : "default");
  engine.name = name;
  return &engine;
}
#define REPLACE(hook, member)                                                         \
  static double bridge_##hook(ARGUMENTS) {                                            \
    return -((jumped_fn)real.member)(a, b, c, d, e, f, p, q, r, s, t, u, v, w, g, h); \
  }
#define REPLACE_FUNCTION(member, symbol) REPLACE(member, member)
#define REPLACE_GRADIENT(formula, symbol) REPLACE(formula, gradients[PLEAT_##formula])
PLEAT_HOOKS(REPLACE_FUNCTION, PLEAT_NO_HOOK, REPLACE_GRADIENT)

VISIBLE const char* pleat_bridge_built_for(void) { return getenv("FAKE_BUILT_FOR"); }

VISIBLE int pleat_bridge_install(const PleatHostFunctions* host, PleatBridgeFunctions* functions) {
  const char* const mode = getenv("FAKE_BRIDGE") != NULL ? getenv("FAKE_BRIDGE") : "";
  errno = ENOTTY;
  if (strcmp(mode, "refuse") == 0) return 7;
  if (host->abi_version != PLEAT_ABI_VERSION || host->struct_size != sizeof *host) return 1;
  if (functions->abi_version != PLEAT_ABI_VERSION || functions->struct_size != sizeof *functions)
    return 1;
  wrapped = (engine_stub_fn)host->engine_stub;
  real = *host;
  fprintf(stderr, "bridge: interposed %u stub %d set %d\n", host->interposed, wrapped != NULL,
          host->set_default_engine_stub != NULL);
  if (strcmp(mode, "recurse") == 0)
    ((void (*)(engine_stub_fn))dlsym(RTLD_DEFAULT, PLEAT_SYMBOL_SET_ENGINE_STUB))(bridge_stub);
  functions->engine_stub = (void*)bridge_stub;
#define GIVE(member, symbol) functions->member = (void*)bridge_##member;
#define GIVE_GRADIENT(formula, symbol) functions->gradients[PLEAT_##formula] = bridge_##formula;
  PLEAT_HOOKS(GIVE, PLEAT_NO_HOOK, GIVE_GRADIENT)
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
