/* Preloaded before libpleat.so into the process that tests fork scripts from (tests/forked.py): a
 * fork registers the engine with libpleat.so once more, when its options are set. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>

#include "torch_bridge/c_abi.h"

typedef void (*set_engine_stub_fn)(void*);

static void* python_stub;

static void pass_on(void* stub) {
  set_engine_stub_fn next;
  *(void**)&next = dlsym(RTLD_NEXT, PLEAT_SYMBOL_SET_ENGINE_STUB);
  next(stub);
}

__attribute__((visibility("default"))) void set_engine_stub(void* stub) __asm__(
    PLEAT_SYMBOL_SET_ENGINE_STUB);
void set_engine_stub(void* stub) {
  python_stub = stub;
  pass_on(stub);
}

/* 0 if torch never told its engine. */
__attribute__((visibility("default"))) int pleat_test_start(void);
int pleat_test_start(void) {
  if (python_stub != NULL) pass_on(python_stub);
  return python_stub != NULL;
}
