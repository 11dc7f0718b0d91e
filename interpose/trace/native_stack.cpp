#include "interpose/trace/native_stack.h"

#include <dlfcn.h>
#include <elf.h>
#include <link.h>

#include <algorithm>
#include <array>
#include <cstring>

namespace pleat::trace {
namespace {

// The build id among the notes of a segment.
void read_build_id(const ElfW(Phdr) & header, std::uint64_t base, Module& module) noexcept {
  const auto* at = reinterpret_cast<const std::uint8_t*>(base + header.p_vaddr);
  const auto* const end = at + header.p_memsz;
  while (static_cast<std::size_t>(end - at) >= sizeof(ElfW(Nhdr))) {
    ElfW(Nhdr) note;
    std::memcpy(&note, at, sizeof note);
    const std::size_t name = (note.n_namesz + 3u) & ~3u;
    const std::size_t bytes = (note.n_descsz + 3u) & ~3u;
    at += sizeof note;
    if (name + bytes > static_cast<std::size_t>(end - at)) return;
    if (note.n_type == NT_GNU_BUILD_ID && note.n_namesz == 4 && std::memcmp(at, "GNU", 4) == 0) {
      module.build_id_bytes =
          static_cast<std::uint8_t>(std::min<std::size_t>(note.n_descsz, sizeof module.build_id));
      std::memcpy(module.build_id, at + name, module.build_id_bytes);
      return;
    }
    at += name + bytes;
  }
}

Module module_of(const dl_phdr_info& object) noexcept {
  Module module;
  module.base = object.dlpi_addr;
  module.begin = UINT64_MAX;
  const char* const path = object.dlpi_name[0] != '\0' ? object.dlpi_name : "/proc/self/exe";
  std::strncpy(module.path, path, sizeof module.path - 1);
  for (int i = 0; i < object.dlpi_phnum; ++i) {
    const auto& header = object.dlpi_phdr[i];
    const std::uint64_t begin = object.dlpi_addr + header.p_vaddr;
    if (header.p_type == PT_LOAD) {
      module.begin = std::min(module.begin, begin);
      module.end = std::max<std::uint64_t>(module.end, begin + header.p_memsz);
    } else if (header.p_type == PT_NOTE && module.build_id_bytes == 0) {
      read_build_id(header, object.dlpi_addr, module);
    }
  }
  return module;
}

}  // namespace

bool NativeStacks::open() noexcept {
  if (backtrace_ == nullptr) {
    if (void* const library = ::dlopen("libunwind.so.8", RTLD_NOW | RTLD_LOCAL)) {
      backtrace_ = reinterpret_cast<int (*)(void**, int)>(::dlsym(library, "unw_backtrace"));
    }
  }
  return backtrace_ != nullptr;
}

void NativeStacks::Range::look_up(std::uint64_t address) noexcept {
  if (end.load(std::memory_order_relaxed) != 0) return;
  struct Search {
    std::uint64_t address;
    Module found;
  } search{address, {}};
  ::dl_iterate_phdr(
      [](dl_phdr_info* object, std::size_t /*bytes*/, void* argument) {
        auto& asked = *static_cast<Search*>(argument);
        const Module module = module_of(*object);
        if (asked.address < module.begin || asked.address >= module.end) return 0;
        asked.found = module;
        return 1;
      },
      &search);
  // A program that asks by itself is no library between its code and the recorder.
  const bool is_library =
      search.found.path[0] == '/' && std::strcmp(search.found.path, "/proc/self/exe") != 0;
  begin.store(is_library ? search.found.begin : 1, std::memory_order_relaxed);
  end.store(is_library ? search.found.end : 1, std::memory_order_relaxed);
}

std::uint32_t NativeStacks::walk(std::span<RawFrame> frames, std::uint64_t caller) noexcept {
  own_.look_up(reinterpret_cast<std::uint64_t>(&read_build_id));
  callers_.look_up(caller);
  std::array<void*, kMostFrames> addresses;
  const int most = static_cast<int>(std::min(frames.size(), addresses.size()));
  const int count = backtrace_(addresses.data(), most);
  std::uint32_t written = 0;
  for (int i = 0; i < count; ++i) {
    // The address behind the call: one less is in it.
    const std::uint64_t address =
        reinterpret_cast<std::uint64_t>(addresses[static_cast<std::size_t>(i)]) - 1;
    if (written == 0 && (own_.holds(address) || callers_.holds(address))) continue;
    frames[written++] = {address, kNativeFrame};
  }
  return written;
}

std::uint32_t Modules::find(std::uint64_t address) const noexcept {
  for (std::size_t i = modules_.size(); i-- > 0;) {  // what was loaded last is most likely there
    if (address >= modules_[i].begin && address < modules_[i].end) {
      return static_cast<std::uint32_t>(i + 1);
    }
  }
  return 0;
}

void Modules::look() noexcept {
  ::dl_iterate_phdr(
      [](dl_phdr_info* object, std::size_t /*bytes*/, void* argument) {
        auto& self = *static_cast<Modules*>(argument);
        const Module found = module_of(*object);
        const std::uint32_t known = self.find(found.begin);
        if (known == 0 || std::strcmp(self.modules_[known - 1].path, found.path) != 0) {
          self.modules_.add(found);
        }
        return 0;
      },
      this);
}

std::uint32_t Modules::at(std::uint64_t address) noexcept {
  if (const std::uint32_t known = find(address); known != 0) return known;
  look();
  return find(address);
}

}  // namespace pleat::trace
