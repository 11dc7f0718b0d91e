/* libpleat.so is loaded into every process below `pleat run`. It is silent and idle in processes
 * that do not load torch. In the others it opens the bridge built for that torch and hands it the
 * engine. A failure costs one line on stderr; the program then runs as if libpleat.so were not
 * there. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <unistd.h>

#include "interpose/internal.h"

typedef void (*set_engine_stub_fn)(void*);
typedef int (*main_fn)(int, char**, char**);

void pleat_say(const char* format, ...) {
  static const char prefix[] = "pleat: ";
  char line[2048];
  memcpy(line, prefix, sizeof prefix);
  const size_t start = sizeof prefix - 1;
  va_list arguments;
  va_start(arguments, format);
  const int written = vsnprintf(line + start, sizeof line - start - 1, format, arguments);
  va_end(arguments);
  size_t length = start + (written > 0 ? (size_t)written : 0);
  if (length > sizeof line - 2) length = sizeof line - 2;
  for (size_t i = 0; i < length; ++i)
    if (line[i] == '\n') line[i] = ' ';
  line[length++] = '\n';
  /* One write, so that the lines of several processes do not mix. */
  if (write(STDERR_FILENO, line, length) < 0) return;
}

void pleat_no_target(const char* symbol) {
  pleat_say("nothing loaded defines %s", symbol);
  abort();
}

static bool switched_off(void) {
  if (getauxval(AT_SECURE) != 0) return true;
  const char* const value = getenv("PLEAT_DISABLE");
  return value != NULL && value[0] != '\0' && strcmp(value, "0") != 0;
}

/* --- the bridge --- */

/* The path of `file` beside libpleat.so: where the loader found the library, or where that link
 * points. */
static bool beside_us(const char* file, char path[PATH_MAX]) {
  Dl_info us;
  char own[PATH_MAX];
  if (dladdr((void*)&beside_us, &us) == 0 ||
      !pleat_absolute_path((void*)&beside_us, us.dli_fname, own))
    return false;
  for (int attempt = 0; attempt < 2; ++attempt) {
    char* const slash = strrchr(own, '/');
    if (slash == NULL) return false;
    const int length = snprintf(path, PATH_MAX, "%.*s/%s", (int)(slash - own), own, file);
    if (length < PATH_MAX && access(path, F_OK) == 0) return true;
    char resolved[PATH_MAX];
    if (attempt == 0 && (realpath(own, resolved) == NULL || strcmp(own, resolved) == 0)) break;
    strcpy(own, resolved);
  }
  return false;
}

/* The path of the bridge for the loaded torch; PLEAT_BRIDGE names one for development. */
static bool find_bridge(char path[PATH_MAX]) {
  const char* const named = getenv("PLEAT_BRIDGE");
  if (named != NULL && named[0] != '\0') {
    const bool fits = strlen(named) < PATH_MAX;
    if (fits)
      strcpy(path, named);
    else
      pleat_say("PLEAT_BRIDGE is no path; running without Pleat");
    return fits;
  }
  unsigned major = 0;
  unsigned minor = 0;
  if (!pleat_torch_version(&major, &minor)) {
    pleat_say("cannot tell the version of the loaded torch; running without Pleat");
    return false;
  }
  char file[64];
  snprintf(file, sizeof file, PLEAT_BRIDGE_FILE_FORMAT, major, minor);
  if (beside_us(file, path)) return true;
  pleat_say(
      "no bridge for torch %u.%u (%s is not beside libpleat.so; see `pleat doctor`); "
      "running without Pleat",
      major, minor, file);
  return false;
}

/* The file may be renamed, or PLEAT_BRIDGE may name it, so the bridge says what it was built for.
 * Where the running torch does not tell its version, only the bridge's own self-test checks. */
static bool built_for_this_torch(void* bridge, const char* path) {
  const char* (*built_for)(void);
  *(void**)&built_for = dlsym(bridge, "pleat_bridge_built_for");
  const char* const built = built_for != NULL ? built_for() : NULL;
  unsigned built_major = 0, built_minor = 0, major = 0, minor = 0;
  if (built == NULL || !pleat_torch_version(&major, &minor) ||
      (sscanf(built, "%u.%u", &built_major, &built_minor) == 2 && built_major == major &&
       built_minor == minor))
    return true;
  pleat_say("%s was built for torch %s, this is torch %u.%u; running without Pleat", path, built,
            major, minor);
  return false;
}

static pleat_bridge_install_fn open_bridge(void) {
  char path[PATH_MAX];
  if (!find_bridge(path)) return NULL;
  void* const bridge = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (bridge == NULL) {
    pleat_say("cannot load the bridge: %s; running without Pleat", dlerror());
    return NULL;
  }
  pleat_bridge_install_fn install;
  *(void**)&install = dlsym(bridge, "pleat_bridge_install");
  if (install == NULL) {
    pleat_say("%s is not a bridge; running without Pleat", path);
  } else if (!built_for_this_torch(bridge, path)) {
    install = NULL;
  }
  return install; /* the handle is kept for good, used or not: its threads or tables may exist */
}

static const char* const set_stub_symbol = PLEAT_SYMBOL_SET_ENGINE_STUB;

/* Lets the bridge take over `stub`. False: `stub` stays in use. */
static bool install(pleat_bridge_install_fn bridge_install, void* set_stub, void* stub,
                    void** engine_stub) {
  PleatHostFunctions host = {
      .abi_version = PLEAT_ABI_VERSION,
      .struct_size = sizeof host,
      .engine_stub = stub,
      .set_default_engine_stub = set_stub,
      .interposed = 1,
  };
#define PLEAT_FIND(member, symbol) \
  if (host.member == NULL) host.member = pleat_find_function(symbol);
#define PLEAT_FIND_GRADIENT(formula, symbol) PLEAT_FIND(gradients[PLEAT_##formula], symbol)
  PLEAT_HOOKS(PLEAT_FIND, PLEAT_FIND, PLEAT_FIND_GRADIENT)
  PleatBridgeFunctions functions = {.abi_version = PLEAT_ABI_VERSION,
                                    .struct_size = sizeof functions};
  if (bridge_install(&host, &functions) != 0) return false; /* the bridge has said why */
  if (functions.abi_version != PLEAT_ABI_VERSION || functions.struct_size != sizeof functions) {
    pleat_say("the bridge speaks ABI %u, libpleat.so speaks %u; running without Pleat",
              functions.abi_version, PLEAT_ABI_VERSION);
    return false;
  }
/* A function may have two names, of which this torch calls one. Both names reach the bridge's
 * function. */
#define PLEAT_POINT(member, symbol) pleat_set_slot(PLEAT_SLOT_##member, functions.member);
#define PLEAT_POINT_OTHER(member, symbol) \
  pleat_set_slot(PLEAT_SLOT_OTHER_##member, functions.member);
#define PLEAT_POINT_GRADIENT(formula, symbol) \
  pleat_set_slot(PLEAT_SLOT_##formula, functions.gradients[PLEAT_##formula]);
  PLEAT_HOOKS(PLEAT_POINT, PLEAT_POINT_OTHER, PLEAT_POINT_GRADIENT)
  if (functions.engine_stub != NULL) *engine_stub = functions.engine_stub;
  return true;
}

/* Returns what the real set_default_engine_stub is to get: the bridge's stub, or `stub`. The bridge
 * is looked for once per process; a later call passes through the same bridge. */
static void* engine_stub_for(void* stub, void* set_stub) {
  enum { kNew, kBusy, kInstalled, kOut };
  static int state = kNew;
  static pleat_bridge_install_fn bridge_install; /* written before kInstalled is */
  int seen = kNew;
  if (!__atomic_compare_exchange_n(&state, &seen, kBusy, false, __ATOMIC_ACQ_REL,
                                   __ATOMIC_ACQUIRE) &&
      seen != kInstalled)
    return stub; /* out, or the bridge itself calls while it installs */
  if (seen == kNew) bridge_install = open_bridge();
  void* result = stub;
  const bool installed = bridge_install != NULL && install(bridge_install, set_stub, stub, &result);
  if (seen == kNew) __atomic_store_n(&state, installed ? kInstalled : kOut, __ATOMIC_RELEASE);
  return result;
}

static set_engine_stub_fn real_set_engine_stub(void) {
  set_engine_stub_fn real;
  *(void**)&real = pleat_find_function(set_stub_symbol);
  return real;
}

/* --- the two ways in --- */

/* Python: libtorch_python calls this near the end of `import torch`, when all else is loaded. */
PLEAT_EXPORT void set_engine_stub(void* stub) __asm__(PLEAT_SYMBOL_SET_ENGINE_STUB);
PLEAT_EXPORT void set_engine_stub(void* stub) {
  const int saved_errno = errno;
  const set_engine_stub_fn real = real_set_engine_stub();
  if (real == NULL) pleat_no_target(set_stub_symbol);
  if (!switched_off()) stub = engine_stub_for(stub, *(void* const*)&real);
  errno = saved_errno;
  real(stub);
}

/* Programs linked to LibTorch never set a stub. There Pleat starts just before main, when the
 * initialisers of every library and of the program have run. */
static main_fn program_main;

static int main_of_torch_program(int argc, char** argv, char** environment) {
  const int saved_errno = errno;
  const set_engine_stub_fn real = real_set_engine_stub();
  if (real != NULL) {
    void* const stub = engine_stub_for(NULL, *(void* const*)&real);
    if (stub != NULL) real(stub);
  }
  errno = saved_errno;
  return program_main(argc, argv, environment);
}

static bool is_torch_program(void) {
  char path[PATH_MAX];
  return pleat_find_module("libtorch_cpu.so", path) &&
         !pleat_find_module("libtorch_python.so", path) && !switched_off();
}

PLEAT_EXPORT int __libc_start_main(main_fn program, int argc, char** argv, void (*init)(void),
                                   void (*fini)(void), void (*loader_fini)(void), void* stack_end) {
  int (*real)(main_fn, int, char**, void (*)(void), void (*)(void), void (*)(void), void*);
  *(void**)&real = dlsym(RTLD_NEXT, "__libc_start_main");
  if (real == NULL) pleat_no_target("__libc_start_main");
  if (is_torch_program()) {
    program_main = program;
    program = main_of_torch_program;
  }
  return real(program, argc, argv, init, fini, loader_fini, stack_end);
}
