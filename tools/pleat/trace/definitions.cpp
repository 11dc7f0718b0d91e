#include "definitions.h"

#include <nlohmann/json.hpp>

#include "numbers.h"

namespace pleat::trace {
namespace {

constexpr std::size_t kMostTextBytes = 256u << 20;   // of all strings
constexpr std::size_t kMostProcessBytes = 1u << 20;  // of the JSON object
constexpr int kMostDepth = 8;                        // of what is kept of it

using Json = nlohmann::json;

std::uint32_t as_id(std::uint64_t number) noexcept {
  return number < kNone ? static_cast<std::uint32_t>(number) : kNone;
}

// ---- the process --------------------------------------------------------------------------------

std::uint64_t unsigned_of(const Json& object, const char* key) {
  const auto it = object.find(key);
  return it != object.end() && it->is_number_unsigned() ? it->get<std::uint64_t>() : 0;
}

std::int64_t small_of(const Json& object, const char* key) {
  const auto it = object.find(key);
  if (it == object.end() || !it->is_number_unsigned()) return -1;
  const auto number = it->get<std::uint64_t>();
  return number <= 1u << 30 ? static_cast<std::int64_t>(number) : -1;
}

std::string text_of(const Json& object, const char* key) {
  const auto it = object.find(key);
  if (it == object.end() || it->is_null()) return {};
  std::string text;
  if (it->is_string()) {
    text = it->get<std::string>();
  } else if (it->is_array()) {  // words of a command
    for (const Json& word : *it)
      if (word.is_string()) text.append(text.empty() ? "" : " ").append(word.get<std::string>());
  } else {
    text = it->dump(-1, ' ', false, Json::error_handler_t::replace);
  }
  if (text.size() > kMostStringBytes) text.resize(kMostStringBytes);
  return text;
}

bool read_process(std::span<const std::uint8_t> bytes, Process& process) {
  if (bytes.size() > kMostProcessBytes) return false;
  try {
    const auto shallow = [](int depth, Json::parse_event_t /*event*/, Json& /*value*/) {
      return depth <= kMostDepth;
    };
    const Json object = Json::parse(bytes.begin(), bytes.end(), shallow);
    if (!object.is_object()) return false;
    process.pid = unsigned_of(object, "pid");
    process.host = text_of(object, "host");
    process.torch = text_of(object, "torch");
    process.pleat = text_of(object, "pleat");
    process.stacks = text_of(object, "stacks");
    process.options = text_of(object, "options");
    process.command = text_of(object, "command");
    process.rank = small_of(object, "rank");
    process.local_rank = small_of(object, "local_rank");
    process.world_size = small_of(object, "world_size");
    process.start_ns = unsigned_of(object, "start_ns");
    process.start_wall_ns = unsigned_of(object, "start_wall_ns");
    process.part = unsigned_of(object, "part");
    return true;
  } catch (const Json::exception&) {
    return false;
  }
}

}  // namespace

// ---- blocks of definitions ----------------------------------------------------------------------

// Reads one item a call; false: it is damaged.
class Definitions::Reading {
 public:
  Reading(Definitions& all, std::span<const std::uint8_t> bytes) : all_(all), cursor_(bytes) {}

  template <class Item>
  [[nodiscard]] bool items(IdTable<Item>& table, std::uint32_t count) {
    if (!table.begin(cursor_.number())) return false;
    for (std::uint32_t i = 0; i < count; ++i) {
      Item item{};
      if (!read(item) || !table.add(item)) return false;
    }
    return cursor_.left() == 0;
  }

 private:
  [[nodiscard]] bool read(Text& text) {
    const std::string_view whole = cursor_.text(cursor_.number());
    const std::string_view kept = whole.substr(0, kMostStringBytes);
    if (cursor_.failed() || kept.size() > kMostTextBytes - all_.texts_.size()) return false;
    text = {static_cast<std::uint32_t>(all_.texts_.size()),
            static_cast<std::uint32_t>(kept.size())};
    all_.texts_ += kept;
    return true;
  }
  [[nodiscard]] bool read(Frame& frame) {
    frame.kind = static_cast<FrameKind>(cursor_.number());
    if (frame.kind != FrameKind::kPython && frame.kind != FrameKind::kNative) return false;
    frame.name = as_id(cursor_.number());
    if (frame.kind == FrameKind::kPython) frame.file = as_id(cursor_.number());
    frame.where = cursor_.number();
    return !cursor_.failed();
  }
  [[nodiscard]] bool read(Stack& stack) {
    stack.caller = as_id(cursor_.number());
    stack.frame = as_id(cursor_.number());
    // Only what came before can be a caller, so that no walk goes in a circle.
    if (stack.caller >= all_.stacks_.next()) stack.caller = 0;
    return !cursor_.failed();
  }
  [[nodiscard]] bool read(Module& module) {
    if (!read(module.path)) return false;
    const std::span<const std::uint8_t> id = cursor_.bytes(cursor_.number());
    module.build_id_bytes = static_cast<std::uint8_t>(std::min(id.size(), module.build_id.size()));
    std::copy_n(id.begin(), module.build_id_bytes, module.build_id.begin());
    return !cursor_.failed();
  }

  Definitions& all_;
  Cursor cursor_;
};

bool Definitions::add(BlockType type, std::uint32_t count, std::span<const std::uint8_t> bytes) {
  Reading reading(*this, bytes);
  switch (type) {
    case BlockType::kProcess:
      return read_process(bytes, process_);
    case BlockType::kStrings:
      return reading.items(strings_, count);
    case BlockType::kFrames:
      return reading.items(frames_, count);
    case BlockType::kStacks:
      return reading.items(stacks_, count);
    case BlockType::kModules:
      return reading.items(modules_, count);
    default:
      return true;  // of a later time, or not a definition
  }
}

std::string_view Definitions::string(std::uint32_t id) const noexcept {
  if (id == 0) return {};
  const Text* const text = strings_.find(id);
  if (text == nullptr) return "?";
  return this->text(*text);
}

}  // namespace pleat::trace
