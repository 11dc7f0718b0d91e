// Names of native functions, from ELF files that the test writes byte by byte.
#include <elf.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <random>

#include "tests/tools/trace/reading.h"
#include "tests/tools/trace/story.h"
#include "tools/pleat/trace/elf_symbols.h"
#include "tools/pleat/trace/lines.h"
#include "tools/pleat/trace/replay.h"

namespace pleat::trace {
namespace {

using namespace testing;
namespace fs = std::filesystem;

const std::vector<std::uint8_t> kBuildId{1, 2, 3, 4, 5, 6, 7, 8};

struct Function {
  const char* name;
  std::uint64_t address, bytes;
  int type = STT_FUNC;
};

template <class Part>
void put(std::string& to, const Part& part) {
  to.append(reinterpret_cast<const char*>(&part), sizeof part);
}

// Header, one note, three sections: nothing, symbols, names.
std::string elf_file(const std::vector<Function>& functions, std::uint32_t type = SHT_SYMTAB) {
  std::string note;
  put(note, Elf64_Nhdr{4, static_cast<Elf64_Word>(kBuildId.size()), NT_GNU_BUILD_ID});
  note.append("GNU\0", 4);
  note.append(kBuildId.begin(), kBuildId.end());
  std::string symbols(sizeof(Elf64_Sym), '\0');
  std::string names(1, '\0');
  for (const Function& one : functions) {
    Elf64_Sym symbol{};
    symbol.st_name = static_cast<Elf64_Word>(names.size());
    symbol.st_info = static_cast<unsigned char>(ELF64_ST_INFO(STB_GLOBAL, one.type));
    symbol.st_shndx = 1;
    symbol.st_value = one.address;
    symbol.st_size = one.bytes;
    put(symbols, symbol);
    names += one.name;
    names += '\0';
  }
  const std::size_t at_note = sizeof(Elf64_Ehdr) + sizeof(Elf64_Phdr);
  const std::size_t at_symbols = at_note + note.size();
  const std::size_t at_names = at_symbols + symbols.size();
  Elf64_Ehdr header{};
  std::memcpy(header.e_ident, ELFMAG, SELFMAG);
  header.e_ident[EI_CLASS] = ELFCLASS64;
  header.e_ident[EI_DATA] = ELFDATA2LSB;
  header.e_phoff = sizeof header;
  header.e_phentsize = sizeof(Elf64_Phdr);
  header.e_phnum = 1;
  header.e_shoff = at_names + names.size();
  header.e_shentsize = sizeof(Elf64_Shdr);
  header.e_shnum = 3;
  Elf64_Phdr segment{};
  segment.p_type = PT_NOTE;
  segment.p_offset = at_note;
  segment.p_filesz = note.size();
  std::array<Elf64_Shdr, 3> sections{};
  sections[1].sh_type = type;
  sections[1].sh_offset = at_symbols;
  sections[1].sh_size = symbols.size();
  sections[1].sh_entsize = sizeof(Elf64_Sym);
  sections[1].sh_link = 2;
  sections[2].sh_type = SHT_STRTAB;
  sections[2].sh_offset = at_names;
  sections[2].sh_size = names.size();
  std::string file;
  put(file, header);
  put(file, segment);
  file += note + symbols + names;
  put(file, sections);
  return file;
}

class TraceSymbols : public ::testing::Test {
 protected:
  TraceSymbols()
      : folder_(fs::temp_directory_path() / ("pleat_symbols." + std::to_string(::getpid()))) {
    fs::create_directory(folder_);
  }
  ~TraceSymbols() override { fs::remove_all(folder_); }
  [[nodiscard]] std::string write(const std::string& bytes, const char* name = "lib.so") const {
    const fs::path path = folder_ / name;
    std::ofstream(path, std::ios::binary) << bytes;
    return path.string();
  }
  fs::path folder_;
};

const std::vector<Function> kFunctions{{"_ZN2at6native3addERKNS_6TensorE", 0x1000, 0x40},
                                       {"late", 0x3000, 0},
                                       {"outer", 0x2000, 0x100},
                                       {"inner", 0x2010, 0x10},
                                       {"data", 0x5000, 0x10, STT_OBJECT}};

TEST_F(TraceSymbols, AFunctionIsFoundByAnyOfItsAddresses) {
  for (const std::uint32_t type : {SHT_SYMTAB, SHT_DYNSYM}) {
    const auto file = ElfSymbols::open(write(elf_file(kFunctions, type)), kBuildId);
    ASSERT_NE(file, nullptr);
    EXPECT_EQ(file->size(), 4u);
    EXPECT_EQ(file->name_at(0x1000), "_ZN2at6native3addERKNS_6TensorE");
    EXPECT_EQ(file->name_at(0x103f), "_ZN2at6native3addERKNS_6TensorE");
    EXPECT_EQ(file->name_at(0x1040), "");
    EXPECT_EQ(file->name_at(0xfff), "");
    EXPECT_EQ(file->name_at(0x2015), "inner");
    EXPECT_EQ(file->name_at(0x2050), "outer");
    EXPECT_EQ(file->name_at(0x3005), "late");
  }
}

TEST_F(TraceSymbols, OnlyTheFileThatWasLoadedAndOnlyRegularFilesAreRead) {
  const std::string path = write(elf_file(kFunctions));
  std::vector<std::uint8_t> other = kBuildId;
  other[7] ^= 1;
  EXPECT_EQ(ElfSymbols::open(path, other), nullptr);
  EXPECT_EQ(ElfSymbols::open(path, std::span(kBuildId).first(4)), nullptr);
  EXPECT_EQ(ElfSymbols::open(path, {}), nullptr);
  const std::string pipe = (folder_ / "pipe").string();
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  for (const std::string& odd :
       {pipe, folder_.string(), std::string("/dev/zero"), std::string("/dev/tty"),
        std::string("lib.so"), std::string(), path + "x", std::string("/proc/self/mem")}) {
    EXPECT_EQ(ElfSymbols::open(odd, kBuildId), nullptr) << odd;
  }
}

TEST_F(TraceSymbols, AFileThatIsDamagedAnywhereIsSurvived) {
  const std::string whole = elf_file(kFunctions);
  const auto look = [&](const std::string& bytes) {
    if (const auto file = ElfSymbols::open(write(bytes), kBuildId))
      for (const std::uint64_t address : {0x1000u, 0x2015u, 0x3005u}) (void)file->name_at(address);
  };
  for (std::size_t cut = 0; cut < whole.size(); ++cut) look(whole.substr(0, cut));
  std::mt19937 random(7);
  for (int i = 0; i < 2000; ++i) {
    std::string bytes = whole;
    for (int j = 0; j < 3; ++j) bytes[random() % bytes.size()] = static_cast<char>(random());
    look(bytes);
  }
}

TEST_F(TraceSymbols, LinesNameTheFunctionWhereTheFileIsStillThere) {
  const std::string id(kBuildId.begin(), kBuildId.end());
  TraceWriter writer;
  const std::uint32_t here = writer.module(write(elf_file(kFunctions), "libhere.so"), id);
  const std::uint32_t gone = writer.module("/no/where/libgone.so", id);
  const std::uint32_t known = writer.native_frame(here, 0x1004);
  const std::uint32_t between = writer.native_frame(here, 0x1f00);
  const std::uint32_t missing = writer.native_frame(gone, 0x1004);
  const MemoryFile memory((writer.flush(), writer.finish()));
  std::string error;
  const auto file = File::open(memory.path(), error);
  Symbols symbols(file->definitions());
  const Lines lines(file->definitions(), &symbols);
  EXPECT_EQ(lines.text(known), "at::native::add (libhere.so)");
  EXPECT_EQ(lines.long_text(known), "at::native::add (" + (folder_ / "libhere.so").string() + ")");
  EXPECT_EQ(lines.text(between), "libhere.so+0x1f00");
  EXPECT_EQ(lines.text(missing), "libgone.so+0x1004");
  EXPECT_EQ(Lines(file->definitions()).text(known), "libhere.so+0x1004");
}

TEST_F(TraceSymbols, TwoPlacesOfAFunctionAreOneLine) {
  const std::string id(kBuildId.begin(), kBuildId.end());
  Story story;
  TraceWriter& writer = story.writer;
  const std::uint32_t here = writer.module(write(elf_file(kFunctions), "libhere.so"), id);
  const std::uint32_t there = writer.module(write(elf_file(kFunctions), "libthere.so"), id);
  auto allocate = [&, block = 0u](std::uint32_t module, std::uint64_t offset) mutable {
    story.stack = writer.stack_of({writer.native_frame(module, offset)});
    story.allocate(++block, 100);
  };
  allocate(here, 0x1004);
  allocate(here, 0x1030);   // the same function
  allocate(here, 0x3004);   // another one
  allocate(there, 0x1004);  // one of this name, elsewhere
  allocate(here, 0x1f00);   // none that is known
  allocate(here, 0x1f10);
  const auto file = story.open();
  const Replay replay(*file);
  Snapshot last;
  replay.for_each([&](const PleatTraceEvent& event, const Ledger& ledger) {
    last = take_snapshot(ledger, -1, event);
  });
  const auto lines_of = [&](Symbols* symbols) {
    Lines lines(file->definitions(), symbols);
    std::map<std::string, std::uint64_t> blocks;
    for (const Group& one : group(last.live, GroupBy::kLine, replay, lines))
      blocks[lines.text(one.frame)] += one.count;
    return blocks;
  };
  Symbols symbols(file->definitions());
  EXPECT_EQ(lines_of(&symbols),
            (std::map<std::string, std::uint64_t>{{"at::native::add (libhere.so)", 2},
                                                  {"at::native::add (libthere.so)", 1},
                                                  {"late (libhere.so)", 1},
                                                  {"libhere.so+0x1f00", 1},
                                                  {"libhere.so+0x1f10", 1}}));
  Lines lines(file->definitions(), &symbols);
  EXPECT_EQ(group(last.live, GroupBy::kLine, replay, lines).size(), 5u);
  EXPECT_EQ(lines_of(nullptr).size(), 6u);
}

TEST(TraceSymbolNames, AreDemangledWithoutArguments) {
  EXPECT_EQ(readable_name("memcpy"), "memcpy");
  EXPECT_EQ(readable_name("_ZNK2at6Tensor3addERKS0_"), "at::Tensor::add");
  EXPECT_EQ(readable_name("_ZNKR2at6Tensor3addERKS0_"), "at::Tensor::add");  // const &
  EXPECT_EQ(readable_name("_ZNVKO2at6Tensor3addEv"), "at::Tensor::add");     // const volatile &&
  EXPECT_EQ(readable_name("_ZZ4mainENKUlvE_clEv"), "main::{lambda()#1}::operator()");
  EXPECT_EQ(readable_name("_Zbroken"), "_Zbroken");
  EXPECT_EQ(readable_name(std::string(5000, 'x')).size(), 600u);
}

}  // namespace
}  // namespace pleat::trace
