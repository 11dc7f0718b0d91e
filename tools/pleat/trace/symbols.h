// What the functions of native frames are called, as far as the files that were loaded are still
// here. Each address is looked up once, and only when somebody asks.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>

#include "definitions.h"
#include "elf_symbols.h"

namespace pleat::trace {

// "at::native::add" of "_ZN2at6native3addERKNS_6TensorE": without arguments. A name of C stays as
// it is.
[[nodiscard]] std::string readable_name(const std::string& symbol);

class Symbols {
 public:
  static constexpr std::size_t kMostFiles = 256;         // that are opened
  static constexpr std::size_t kMostNames = 1u << 17;    // that are kept
  static constexpr std::size_t kMostSymbols = 1u << 24;  // of all files together

  explicit Symbols(const Definitions& definitions) : definitions_(definitions) {}

  // Of the module's function that holds the offset; empty: nothing is known. Valid until the next
  // call.
  [[nodiscard]] std::string_view name(std::uint32_t module, std::uint64_t offset);

 private:
  [[nodiscard]] const ElfSymbols* file_of(std::uint32_t module);

  const Definitions& definitions_;
  std::unordered_map<std::uint32_t, std::unique_ptr<ElfSymbols>> files_;  // null: of no use
  std::size_t opened_symbols_ = 0;
  std::unordered_map<std::uint32_t, std::unordered_map<std::uint64_t, std::string>> names_;
  std::size_t kept_names_ = 0;
};

}  // namespace pleat::trace
