/* What the three source files of libpleat.so share. The library is C and needs libc only. Of torch
 * it knows some mangled names (torch_bridge/c_abi.h) and where the version number stands. */
#ifndef PLEAT_INTERPOSE_INTERNAL_H
#define PLEAT_INTERPOSE_INTERNAL_H

#include <limits.h>
#include <stdbool.h>

#include "torch_bridge/c_abi.h"

/* The only functions another object may see; the version script (exports.map) is the second lock.
 */
#define PLEAT_EXPORT __attribute__((visibility("default")))

/* The jumps: each exported function jumps through its slot, which starts at a resolver. A slot for
 * each row of PLEAT_HOOKS, in its order. */
#define PLEAT_SLOT(hook, name) PLEAT_SLOT_##hook,
#define PLEAT_OTHER_SLOT(hook, name) PLEAT_SLOT_OTHER_##hook,
enum pleat_slot { PLEAT_HOOKS(PLEAT_SLOT, PLEAT_OTHER_SLOT, PLEAT_SLOT) PLEAT_SLOTS };
#undef PLEAT_SLOT
#undef PLEAT_OTHER_SLOT

/* Points a slot at `target`, for this and every later call on any thread. NULL leaves the slot as
 * it is. */
void pleat_set_slot(enum pleat_slot slot, void* target);

/* --- modules.c: what is loaded, and where --- */

/* Copies the path of the first loaded object (ourselves excluded) whose file name starts with
 * `name`, as the loader spells it, into `path`. */
bool pleat_find_module(const char* name, char path[PATH_MAX]);

/* The function `symbol` of the loaded libtorch_cpu.so, or of whichever object defines it where
 * there is no such file. Never ours; NULL if no object defines it. */
void* pleat_find_function(const char* symbol);

/* Absolute path of the file mapped at `address`, which the loader calls `name`. */
bool pleat_absolute_path(const void* address, const char* name, char path[PATH_MAX]);

/* MAJOR.MINOR of the loaded torch, read from torch/version.py or LibTorch's build-version. */
bool pleat_torch_version(unsigned* major, unsigned* minor);

/* --- preload.c --- */

/* One line on stderr, "pleat: ..." with a newline added; a newline inside becomes a space. */
void pleat_say(const char* format, ...) __attribute__((format(printf, 1, 2)));

/* Ends the process after a call that has no function to go to. Does not return. */
void pleat_no_target(const char* symbol) __attribute__((noreturn));

#endif
