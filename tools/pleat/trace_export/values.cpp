#include "values.h"

#include <fmt/format.h>

#include <limits>
#include <unordered_map>
#include <vector>

namespace pleat::cli {
namespace {

// ---- JSON ---------------------------------------------------------------------------------------

class JsonWriter final : public ValueWriter {
 public:
  explicit JsonWriter(TraceOutput& out) : out_(out) {}

  void begin_dict() override { begin('{', '}'); }
  void begin_list() override { begin('[', ']'); }
  void end() override {
    out_.put(open_.back().end);
    open_.pop_back();
  }
  void key(std::string_view name) override {
    separate();
    put_json_text(out_, name);
    out_.put(':');
    after_key_ = true;
  }
  void integer(std::int64_t value) override {
    separate();
    out_.put(fmt::format_int(value).c_str());
  }
  void boolean(bool value) override {
    separate();
    out_.put(value ? "true" : "false");
  }
  void text(std::string_view value) override {
    separate();
    put_json_text(out_, value);
  }
  void word(std::string_view value) override { text(value); }
  bool recall(std::uint64_t /*id*/) override { return false; }
  void remember(std::uint64_t /*id*/) override {}
  void finish() override { out_.put('\n'); }

 private:
  struct Open {
    char end;
    bool empty = true;
  };
  void begin(char begin, char end) {
    separate();
    out_.put(begin);
    open_.push_back({end});
  }
  void separate() {
    if (std::exchange(after_key_, false) || open_.empty()) return;
    if (!std::exchange(open_.back().empty, false)) out_.put(',');
    // Lines end between the events of a device, so that other tools can cut the file.
    if (open_.size() <= 3) out_.put('\n');
  }

  TraceOutput& out_;
  std::vector<Open> open_;
  bool after_key_ = false;
};

// ---- pickle -------------------------------------------------------------------------------------

class PickleWriter final : public ValueWriter {
 public:
  explicit PickleWriter(TraceOutput& out) : out_(out) { out_.put("\x80\x04"); }

  void begin_dict() override {
    before();
    out_.put('}');
    open_.push_back({true});
  }
  void begin_list() override {
    before();
    out_.put(']');
    open_.push_back({false});
  }
  void end() override {
    const Open ended = open_.back();
    open_.pop_back();
    if (ended.batch > 0) out_.put(ended.is_dict ? 'u' : 'e');  // SETITEMS, APPENDS
    after();
  }
  void key(std::string_view name) override {
    Open& dict = open_.back();
    if (dict.batch++ == 0) out_.put('(');
    put_word(name);
  }
  void integer(std::int64_t value) override {
    before();
    if (value >= 0 && value <= 0xff) {
      put_number('K', value, 1);
    } else if (value >= 0 && value <= 0xffff) {
      put_number('M', value, 2);
    } else if (value >= std::numeric_limits<std::int32_t>::min() &&
               value <= std::numeric_limits<std::int32_t>::max()) {
      put_number('J', value, 4);
    } else {
      out_.put('\x8a');  // LONG1
      put_number(8, value, 8);
    }
    after();
  }
  void boolean(bool value) override {
    before();
    out_.put(value ? '\x88' : '\x89');
    after();
  }
  void text(std::string_view value) override {
    before();
    put_text(value);
    after();
  }
  void word(std::string_view value) override {
    before();
    put_word(value);
    after();
  }
  bool recall(std::uint64_t id) override {
    const auto known = values_.find(id);
    if (known == values_.end()) return false;
    before();
    put_memo('h', 'j', known->second);  // BINGET
    after();
    return true;
  }
  // The value lies on the unpickler's stack, whatever list it is in.
  void remember(std::uint64_t id) override {
    // after() may have ended the batch of the list around it: then it is not on top any more.
    if (!on_top_) return;
    values_.emplace(id, next_memo_);
    put_memo('q', 'r', next_memo_++);  // BINPUT
  }
  void finish() override { out_.put('.'); }

 private:
  static constexpr std::size_t kBatch = 1000;
  struct Open {
    bool is_dict;
    std::size_t batch = 0;  // items since the mark; 0: there is no mark
  };

  void before() {
    if (open_.empty() || open_.back().is_dict) return;
    if (open_.back().batch++ == 0) out_.put('(');
  }
  void after() {
    on_top_ = true;
    if (open_.empty() || open_.back().is_dict || open_.back().batch < kBatch) return;
    out_.put('e');
    open_.back().batch = 0;
    on_top_ = false;
  }
  void put_number(char opcode, std::int64_t value, unsigned bytes) {
    out_.put(opcode);
    for (unsigned i = 0; i < bytes; ++i)
      out_.put(static_cast<char>(static_cast<std::uint64_t>(value) >> (8 * i)));
  }
  void put_memo(char small, char large, std::uint32_t number) {
    put_number(number < 256 ? small : large, number, number < 256 ? 1 : 4);
  }
  void put_text(std::string_view value) {
    const std::string text = valid_utf8(value);
    const auto bytes = static_cast<std::int64_t>(text.size());
    if (bytes < 256) {
      put_number('\x8c', bytes, 1);  // SHORT_BINUNICODE
    } else {
      put_number('X', bytes, 4);
    }
    out_.put(text);
  }
  void put_word(std::string_view value) {
    const auto known = words_.find(std::string(value));
    if (known != words_.end()) return put_memo('h', 'j', known->second);
    put_text(value);
    words_.emplace(value, next_memo_);
    put_memo('q', 'r', next_memo_++);
  }

  TraceOutput& out_;
  std::vector<Open> open_;
  std::unordered_map<std::string, std::uint32_t> words_;
  std::unordered_map<std::uint64_t, std::uint32_t> values_;
  std::uint32_t next_memo_ = 0;
  bool on_top_ = false;
};

}  // namespace

std::unique_ptr<ValueWriter> make_json_writer(TraceOutput& out) {
  return std::make_unique<JsonWriter>(out);
}

std::unique_ptr<ValueWriter> make_pickle_writer(TraceOutput& out) {
  return std::make_unique<PickleWriter>(out);
}

}  // namespace pleat::cli
