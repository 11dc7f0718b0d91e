/* Finds torch among the loaded objects by walking them and asking one by its handle. A lookup in
 * the global scope would find this library first. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "interpose/internal.h"

static const char* file_name(const char* path) {
  const char* slash = strrchr(path, '/');
  return slash != NULL ? slash + 1 : path;
}

static bool copy_path(char path[PATH_MAX], const char* from) {
  const size_t length = strlen(from);
  if (length >= PATH_MAX) return false;
  memcpy(path, from, length + 1);
  return true;
}

/* The walks. Their callbacks run under the loader's lock, so they only compare and copy. */

struct walk {
  const char* name; /* start of a file name; NULL: any object */
  size_t skip;      /* matches to pass over */
  char* path;
  bool found;
};

static bool maps_ourselves(const struct dl_phdr_info* info) {
  const uintptr_t here = (uintptr_t)&maps_ourselves;
  for (unsigned i = 0; i < info->dlpi_phnum; ++i) {
    const uintptr_t begin = info->dlpi_addr + info->dlpi_phdr[i].p_vaddr;
    if (info->dlpi_phdr[i].p_type == PT_LOAD && here >= begin &&
        here - begin < info->dlpi_phdr[i].p_memsz)
      return true;
  }
  return false;
}

static int visit(struct dl_phdr_info* info, size_t size, void* data) {
  (void)size;
  struct walk* const walk = data;
  const char* const path = info->dlpi_name;
  if (path == NULL || path[0] == '\0') return 0; /* the program: its scope would find us */
  if (walk->name != NULL && strncmp(file_name(path), walk->name, strlen(walk->name)) != 0) return 0;
  if (maps_ourselves(info)) return 0;
  if (walk->skip > 0) {
    --walk->skip;
    return 0;
  }
  walk->found = copy_path(walk->path, path);
  return 1;
}

static bool nth_module(const char* name, size_t n, char path[PATH_MAX]) {
  struct walk walk = {.name = name, .skip = n, .path = path, .found = false};
  dl_iterate_phdr(visit, &walk);
  return walk.found;
}

bool pleat_find_module(const char* name, char path[PATH_MAX]) { return nth_module(name, 0, path); }

/* The handle is never closed: a function found through it may be called until the process ends. */
static void* function_of(const char* path, const char* symbol) {
  void* const handle = dlopen(path, RTLD_NOLOAD | RTLD_LAZY);
  if (handle == NULL) return NULL;
  void* const function = dlsym(handle, symbol);
  Dl_info of_function;
  Dl_info of_us;
  if (function != NULL && dladdr(function, &of_function) != 0 &&
      dladdr((void*)&function_of, &of_us) != 0 && of_function.dli_fbase != of_us.dli_fbase)
    return function;
  dlclose(handle);
  return NULL;
}

void* pleat_find_function(const char* symbol) {
  char path[PATH_MAX];
  if (pleat_find_module("libtorch_cpu.so", path)) {
    void* const function = function_of(path, symbol);
    if (function != NULL) return function;
  }
  /* Torch may be linked into another library. Whoever called us is among these objects. */
  for (size_t n = 0; nth_module(NULL, n, path); ++n) {
    void* const function = function_of(path, symbol);
    if (function != NULL) return function;
  }
  return NULL;
}

/* A line of /proc/self/maps: "begin-end perms offset device inode      path\n". */
static bool mapped_file(const void* address, char path[PATH_MAX]) {
  FILE* const maps = fopen("/proc/self/maps", "re");
  if (maps == NULL) return false;
  char line[PATH_MAX + 128];
  bool found = false;
  while (!found && fgets(line, sizeof line, maps) != NULL) {
    char* rest = NULL;
    const uintptr_t begin = strtoull(line, &rest, 16);
    const uintptr_t end = *rest == '-' ? strtoull(rest + 1, &rest, 16) : 0;
    if ((uintptr_t)address < begin || (uintptr_t)address >= end) continue;
    char* const name = strchr(rest, '/');
    if (name == NULL) break;
    name[strcspn(name, "\n")] = '\0';
    found = copy_path(path, name);
  }
  fclose(maps);
  return found;
}

bool pleat_absolute_path(const void* address, const char* name, char path[PATH_MAX]) {
  /* A relative path was relative to a directory that the program may have left since. */
  if (name != NULL && name[0] == '/') return copy_path(path, name);
  return mapped_file(address, path);
}

/* Removes the last component of `path`; false if there is none. */
static bool to_directory(char path[PATH_MAX]) {
  char* const slash = strrchr(path, '/');
  if (slash == NULL) return false;
  *slash = '\0';
  return true;
}

static bool parse_version(const char* text, unsigned* major, unsigned* minor) {
  return sscanf(text, "%3u.%3u", major, minor) == 2;
}

/* Reads `directory`/`file`. The number stands at the start of the file, or after
 * `__version__ = '`. */
static bool version_in(const char* directory, const char* file, unsigned* major, unsigned* minor) {
  static const char marker[] = "\n__version__";
  char path[PATH_MAX];
  if (snprintf(path, sizeof path, "%s/%s", directory, file) >= (int)sizeof path) return false;
  const int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return false;
  char text[4096];
  text[0] = '\n'; /* the marker may be the first line */
  ssize_t length;
  do {
    length = read(fd, text + 1, sizeof text - 2);
  } while (length < 0 && errno == EINTR);
  close(fd);
  if (length <= 0) return false;
  text[length + 1] = '\0';
  const char* const line = strstr(text, marker);
  if (line == NULL) return parse_version(text + 1, major, minor);
  const char* value = line + sizeof marker - 1;
  value += strcspn(value, "'\"\n");
  return *value != '\n' && *value != '\0' && parse_version(value + 1, major, minor);
}

bool pleat_torch_version(unsigned* major, unsigned* minor) {
  char path[PATH_MAX];
  /* torch/lib/libtorch_cpu.so; LibTorch: libtorch/lib/libtorch_cpu.so */
  if (pleat_find_module("libtorch_cpu.so", path) && to_directory(path)) {
    char parent[PATH_MAX];
    if (snprintf(parent, sizeof parent, "%s/..", path) < (int)sizeof parent &&
        (version_in(parent, "version.py", major, minor) ||
         version_in(parent, "build-version", major, minor)))
      return true;
  }
  /* Some distributions keep torch's libraries elsewhere; there the extension module stands beside
   * torch/version.py. */
  for (size_t n = 0; nth_module("_C.", n, path); ++n) {
    if (to_directory(path) && strcmp(file_name(path), "torch") == 0 &&
        version_in(path, "version.py", major, minor))
      return true;
  }
  return false;
}
