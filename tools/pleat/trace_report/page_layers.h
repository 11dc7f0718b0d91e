// A page's data on modules and groups, and on tensors left raw.
#pragma once

#include <functional>
#include <string>

#include "tools/pleat/answer.h"
#include "watch.h"

namespace pleat::cli {

class LayersJson {
 public:
  // `number`: of a text that the page holds once.
  LayersJson(const TraceReport& report, trace::Lines& lines,
             std::function<Json(std::string)> number)
      : definitions_(report.replay->file().definitions()),
        layers_(*report.layers),
        lines_(lines),
        number_(std::move(number)) {}

  // Rows in the order of the tree; null: the trace tells of no modules.
  [[nodiscard]] Json modules(const DeviceReport& device) const;
  // Null: none were asked for.
  [[nodiscard]] Json groups(const DeviceReport& device) const;
  [[nodiscard]] Json left_alone(const DeviceReport& device) const;

 private:
  [[nodiscard]] Json figures(const trace::PartFigures& of) const;
  [[nodiscard]] Json line(std::uint32_t frame) const {
    return number_(frame == 0 ? std::string() : lines_.long_text(frame));
  }

  const trace::Definitions& definitions_;
  const Layers& layers_;
  trace::Lines& lines_;
  std::function<Json(std::string)> number_;
};

}  // namespace pleat::cli
