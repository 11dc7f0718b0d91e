#include "symbols.h"

#include <cxxabi.h>

#include <cstdlib>
#include <utility>

namespace pleat::trace {
namespace {

constexpr std::size_t kMostShown = 600;  // bytes; a person reads no more

// Without the arguments at the end, which begin with the '(' that pairs with the last ')', and
// without what follows them: there may be several of these, in any order.
void cut_arguments(std::string& name) {
  for (bool was_cut = true; std::exchange(was_cut, false);) {
    for (const std::string_view suffix : {" const", " volatile", " &", " &&", " noexcept"}) {
      if (!name.ends_with(suffix)) continue;
      name.resize(name.size() - suffix.size());
      was_cut = true;
    }
  }
  if (!name.ends_with(')')) return;
  int depth = 0;
  for (std::size_t i = name.size(); i-- > 1;) {
    depth += name[i] == ')' ? 1 : name[i] == '(' ? -1 : 0;
    if (depth == 0) return name.resize(i);
  }
}

}  // namespace

std::string readable_name(const std::string& symbol) {
  std::string name = symbol;
  if (symbol.starts_with("_Z")) {
    int status = 0;
    char* const said = abi::__cxa_demangle(symbol.c_str(), nullptr, nullptr, &status);
    if (said != nullptr) {
      name = said;
      cut_arguments(name);
    }
    std::free(said);
  }
  if (name.size() > kMostShown) name.resize(kMostShown);
  return name;
}

const ElfSymbols* Symbols::file_of(std::uint32_t id) {
  if (const auto known = files_.find(id); known != files_.end()) return known->second.get();
  const Module* const module = definitions_.module(id);
  if (module == nullptr || files_.size() >= kMostFiles || opened_symbols_ >= kMostSymbols)
    return nullptr;
  std::unique_ptr<ElfSymbols> file =
      ElfSymbols::open(std::string(definitions_.text(module->path)),
                       std::span(module->build_id).first(module->build_id_bytes));
  if (file != nullptr) opened_symbols_ += file->size();
  return (files_[id] = std::move(file)).get();
}

std::string_view Symbols::name(std::uint32_t module, std::uint64_t offset) {
  if (const auto names = names_.find(module); names != names_.end())
    if (const auto known = names->second.find(offset); known != names->second.end())
      return known->second;
  const ElfSymbols* const file = file_of(module);
  if (file == nullptr) return {};
  if (kept_names_ >= kMostNames) {
    names_.clear();
    kept_names_ = 0;
  }
  ++kept_names_;
  return names_[module][offset] = readable_name(file->name_at(offset));
}

}  // namespace pleat::trace
