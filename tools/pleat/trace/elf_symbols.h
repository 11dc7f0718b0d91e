// The functions of an ELF file, by address. Reads the symbol tables, no debug information.
//
// A trace may name any file: only regular files are opened, only to read, and nothing in them is
// believed.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace pleat::trace {

class ElfSymbols {
 public:
  static constexpr std::size_t kMostSymbols = 1u << 22;  // of a file
  static constexpr std::size_t kMostName = 4096;         // bytes of a name

  // Null: it is no such file, it has another build id, or it has no symbols.
  [[nodiscard]] static std::unique_ptr<ElfSymbols> open(const std::string& path,
                                                        std::span<const std::uint8_t> build_id);
  ~ElfSymbols();
  ElfSymbols(const ElfSymbols&) = delete;
  ElfSymbols& operator=(const ElfSymbols&) = delete;

  // The function that holds the address, as the linker names it; empty: none is known.
  [[nodiscard]] std::string name_at(std::uint64_t address) const;
  [[nodiscard]] std::size_t size() const noexcept { return symbols_.size(); }

 private:
  struct Symbol {
    std::uint64_t begin = 0;
    std::uint32_t bytes = 0;  // 0: up to the next
    std::uint32_t name = 0;   // its place in the table of names
  };
  struct Section;

  ElfSymbols() = default;
  [[nodiscard]] bool open_file(const std::string& path);
  [[nodiscard]] bool read_at(std::uint64_t offset, void* to, std::size_t bytes) const;
  [[nodiscard]] bool has_build_id(std::span<const std::uint8_t> wanted) const;
  [[nodiscard]] std::vector<Section> sections() const;
  [[nodiscard]] bool load(std::uint32_t wanted_type);
  void add_symbols(const Section& table);

  int file_ = -1;
  std::uint64_t names_ = 0;  // offset of the table of names
  std::uint64_t names_bytes_ = 0;
  std::vector<Symbol> symbols_;  // by address
};

}  // namespace pleat::trace
