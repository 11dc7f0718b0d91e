#include "elf_symbols.h"

#include <elf.h>
#include <fcntl.h>
#include <fmt/ranges.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <tuple>

#include "read_at.h"

namespace pleat::trace {
namespace {

constexpr std::size_t kMostNoteBytes = 1u << 16;
constexpr std::size_t kLookBack = 32;  // symbols that may lie within the one that is looked for

// Build id of a note segment's bytes; empty: it has none.
std::span<const std::uint8_t> build_id_in(std::span<const std::uint8_t> notes) {
  const auto padded = [](std::size_t bytes) { return (bytes + 3) & ~std::size_t{3}; };
  while (notes.size() >= sizeof(Elf64_Nhdr)) {
    Elf64_Nhdr note;
    std::memcpy(&note, notes.data(), sizeof note);
    const std::size_t name = padded(note.n_namesz);
    const std::size_t left = notes.size() - sizeof note;
    if (name > left || padded(note.n_descsz) > left - name) return {};
    const auto* const words = reinterpret_cast<const char*>(notes.data()) + sizeof note;
    if (note.n_type == NT_GNU_BUILD_ID && note.n_namesz == 4 && std::memcmp(words, "GNU", 4) == 0)
      return notes.subspan(sizeof note + name, note.n_descsz);
    notes = notes.subspan(sizeof note + name + padded(note.n_descsz));
  }
  return {};
}

}  // namespace

struct ElfSymbols::Section : Elf64_Shdr {};

ElfSymbols::~ElfSymbols() {
  if (file_ >= 0) ::close(file_);
}

// To open a device or the end of a pipe may do something already: only plain files are opened.
bool ElfSymbols::open_file(const std::string& path) {
  struct stat there {};
  if (path.empty() || path[0] != '/' || ::stat(path.c_str(), &there) != 0 ||
      !S_ISREG(there.st_mode)) {
    return false;
  }
  file_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  return file_ >= 0 && ::fstat(file_, &there) == 0 && S_ISREG(there.st_mode);
}

bool ElfSymbols::read_at(std::uint64_t offset, void* to, std::size_t bytes) const {
  return trace::read_at(file_, offset, to, bytes);
}

bool ElfSymbols::has_build_id(std::span<const std::uint8_t> wanted) const {
  Elf64_Ehdr header;
  if (wanted.empty() || !read_at(0, &header, sizeof header)) return false;
  if (std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 || header.e_ident[EI_CLASS] != ELFCLASS64 ||
      header.e_ident[EI_DATA] != ELFDATA2LSB || header.e_phentsize != sizeof(Elf64_Phdr)) {
    return false;
  }
  for (std::uint64_t i = 0; i < header.e_phnum; ++i) {
    Elf64_Phdr segment;
    if (!read_at(header.e_phoff + i * sizeof segment, &segment, sizeof segment)) return false;
    if (segment.p_type != PT_NOTE || segment.p_filesz > kMostNoteBytes) continue;
    std::vector<std::uint8_t> notes(segment.p_filesz);
    if (!read_at(segment.p_offset, notes.data(), notes.size())) continue;
    const std::span<const std::uint8_t> found = build_id_in(notes);
    if (!found.empty()) return std::equal(found.begin(), found.end(), wanted.begin(), wanted.end());
  }
  return false;
}

std::vector<ElfSymbols::Section> ElfSymbols::sections() const {
  Elf64_Ehdr header;
  if (!read_at(0, &header, sizeof header) || header.e_shentsize != sizeof(Elf64_Shdr)) return {};
  std::vector<Section> sections(header.e_shnum);
  if (!read_at(header.e_shoff, sections.data(), sections.size() * sizeof(Section))) return {};
  return sections;
}

bool ElfSymbols::load(std::uint32_t wanted_type) {
  const std::vector<Section> all = sections();
  for (const Section& table : all) {
    if (table.sh_type != wanted_type || table.sh_entsize != sizeof(Elf64_Sym) ||
        table.sh_link >= all.size()) {
      continue;
    }
    names_ = all[table.sh_link].sh_offset;
    names_bytes_ = all[table.sh_link].sh_size;
    add_symbols(table);
    if (!symbols_.empty()) break;
  }
  // Of those at one address the longest comes last, and is found first.
  std::sort(symbols_.begin(), symbols_.end(), [](const Symbol& a, const Symbol& b) {
    return std::tie(a.begin, a.bytes, b.name) < std::tie(b.begin, b.bytes, a.name);
  });
  return !symbols_.empty();
}

void ElfSymbols::add_symbols(const Section& table) {
  std::array<Elf64_Sym, 4096> batch;
  const std::uint64_t count =
      std::min<std::uint64_t>(table.sh_size / sizeof(Elf64_Sym), kMostSymbols);
  for (std::uint64_t done = 0; done < count;) {
    const std::size_t now = std::min<std::uint64_t>(batch.size(), count - done);
    if (!read_at(table.sh_offset + done * sizeof(Elf64_Sym), batch.data(), now * sizeof(Elf64_Sym)))
      return;
    done += now;
    for (std::size_t i = 0; i < now; ++i) {
      const Elf64_Sym& one = batch[i];
      const auto type = ELF64_ST_TYPE(one.st_info);
      if ((type != STT_FUNC && type != STT_GNU_IFUNC) || one.st_shndx == SHN_UNDEF) continue;
      symbols_.push_back({one.st_value,
                          static_cast<std::uint32_t>(std::min<std::uint64_t>(
                              one.st_size, std::numeric_limits<std::uint32_t>::max())),
                          one.st_name});
    }
  }
}

std::unique_ptr<ElfSymbols> ElfSymbols::open(const std::string& path,
                                             std::span<const std::uint8_t> build_id) {
  const auto opened = [&](const std::string& from) {
    std::unique_ptr<ElfSymbols> one(new ElfSymbols);
    return one->open_file(from) && one->has_build_id(build_id) ? std::move(one) : nullptr;
  };
  std::unique_ptr<ElfSymbols> own = opened(path);
  if (own != nullptr && own->load(SHT_SYMTAB)) return own;
  // Where distributions put what they strip off their files.
  if (build_id.size() > 1) {
    std::unique_ptr<ElfSymbols> all =
        opened(fmt::format("/usr/lib/debug/.build-id/{:02x}/{:02x}.debug", build_id[0],
                           fmt::join(build_id.subspan(1), "")));
    if (all != nullptr && all->load(SHT_SYMTAB)) return all;
  }
  return own != nullptr && own->load(SHT_DYNSYM) ? std::move(own) : nullptr;
}

std::string ElfSymbols::name_at(std::uint64_t address) const {
  auto behind = std::upper_bound(
      symbols_.begin(), symbols_.end(), address,
      [](std::uint64_t wanted, const Symbol& symbol) { return wanted < symbol.begin; });
  for (std::size_t i = 0; i < kLookBack && behind != symbols_.begin(); ++i) {
    const Symbol& symbol = *--behind;
    const bool holds = symbol.bytes == 0 ? i == 0 : address - symbol.begin < symbol.bytes;
    if (!holds || symbol.name >= names_bytes_) continue;
    std::string name(std::min<std::uint64_t>(kMostName, names_bytes_ - symbol.name), '\0');
    if (!read_at(names_ + symbol.name, name.data(), name.size())) return {};
    name.resize(std::min(name.find('\0'), name.size()));
    return name;
  }
  return {};
}

}  // namespace pleat::trace
