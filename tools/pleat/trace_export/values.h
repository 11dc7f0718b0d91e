// Nested values, written as JSON or as a pickle while they are made. Python and the viewer of
// torch's snapshots read both.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "tools/pleat/trace_command/output.h"

namespace pleat::cli {

class ValueWriter {
 public:
  virtual ~ValueWriter() = default;
  ValueWriter(const ValueWriter&) = delete;
  ValueWriter& operator=(const ValueWriter&) = delete;

  virtual void begin_dict() = 0;
  virtual void begin_list() = 0;
  virtual void end() = 0;  // of the innermost of these
  // Before a value in a dictionary.
  virtual void key(std::string_view name) = 0;
  virtual void integer(std::int64_t value) = 0;
  virtual void boolean(bool value) = 0;
  virtual void text(std::string_view value) = 0;
  // Few different ones, each often.
  virtual void word(std::string_view value) = 0;

  // A value that is the same each time may be written once: true, it stands there already. Else it
  // is to be written, and remember() called behind it.
  virtual bool recall(std::uint64_t id) = 0;
  virtual void remember(std::uint64_t id) = 0;

  virtual void finish() = 0;  // behind the outermost value

  void put(std::string_view name, std::int64_t value) {
    key(name);
    integer(value);
  }
  void put(std::string_view name, std::string_view value) {
    key(name);
    word(value);
  }

 protected:
  ValueWriter() = default;
};

[[nodiscard]] std::unique_ptr<ValueWriter> make_json_writer(TraceOutput& out);
// Protocol 4, of opcodes that torch's viewer knows: no frames, no globals. Lists grow by at most
// 1000 items at once, as the viewer passes each item as an argument.
[[nodiscard]] std::unique_ptr<ValueWriter> make_pickle_writer(TraceOutput& out);

}  // namespace pleat::cli
