// The tables of a profile's units and of its curve, for text, JSON and a page.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>

#include "profile_figures.h"
#include "torch_bridge/core/option_text.h"
#include "trace/trail.h"

namespace pleat::cli {
namespace {

Cell word(const std::string& text) { return {text, bridge::printable(text)}; }

}  // namespace

Table unit_table(const std::vector<UnitFigures>& rows, bool with_trail) {
  Table table({name_column("producer", "producer"), name_column("reader", "reader"),
               name_column("type and shape", "", 3), figure_column("tensors", "tensors", 2),
               figure_column("MB", "bytes"), figure_column("bits", "width"),
               figure_column("uniform", "uniform_width", 1),
               figure_column("payload MB", "payload_bytes", 4),
               figure_column("sensitivity", "sensitivity"), figure_column("share", "share"),
               with_trail ? word_column("why", "why") : name_column("why", "why"), json_columns()});
  for (const UnitFigures& row : rows) {
    const sensitivity::Unit& unit = *row.unit;
    Json more = identity(unit);
    more.update({{"lossy", row.lossy},
                 {"measured", row.measured},
                 {"uniform_payload_bytes", row.uniform_bytes},
                 {"noise", number(row.noise)},
                 {"trail", unit.trail}});
    table.add({word(unit.producer),
               word(unit.reader),
               word(form_of(unit)),
               {unit.tensors, unit.tensors > 1 ? std::to_string(unit.tensors) : ""},
               {unit.bytes, megabytes(unit.bytes)},
               {row.width, width_text(row.width)},
               {row.uniform_width, row.lossy ? width_text(row.uniform_width) : ""},
               {row.payload_bytes, megabytes(row.payload_bytes)},
               {number(row.sensitivity), noise_text(row.sensitivity)},
               {number(row.share), share_text(row.share)},
               {why(row), with_trail && !unit.trail.empty()
                              ? trace::trail_words(fmt::format("{}", fmt::join(unit.trail, " ")))
                              : bridge::printable(why(row))},
               {std::move(more), ""}});
  }
  return table;
}

Table curve_table(const std::vector<CurvePoint>& curve, bool known) {
  Table table({figure_column("bits", "bits"), figure_column("payload MB", "measured_payload_bytes"),
               figure_column("all MB", "payload_bytes"), figure_column("ratio", "ratio"),
               figure_column("noise", "noise"), figure_column("of norm"),
               figure_column("uniform", "uniform_noise"), figure_column("of norm"),
               figure_column("as uniform", "uniform_bits"), json_columns()});
  for (const CurvePoint& point : curve) {
    const double noise = known ? point.noise : kUnknown;
    const double uniform = known ? point.uniform_noise : kUnknown;
    const double as_uniform = known ? point.uniform_bits : kUnknown;
    table.add(
        {{point.bits, bits_text(point.bits)},
         {point.measured_bytes, megabytes(point.measured_bytes)},
         {point.all_bytes, megabytes(point.all_bytes)},
         {number(point.ratio), std::isnan(point.ratio) ? "-" : fmt::format("{:.2f}x", point.ratio)},
         {number(noise), noise_text(noise)},
         {number(noise), norm_text(noise)},
         {number(uniform), noise_text(uniform)},
         {number(uniform), norm_text(uniform)},
         {number(as_uniform), std::isnan(as_uniform) ? "-" : fmt::format("{:.2f}", as_uniform)},
         {{{"lossy_payload_bytes", point.lossy_bytes},
           {"uniform_lossy_payload_bytes", point.uniform_bytes}},
          ""}});
  }
  return table;
}

}  // namespace pleat::cli
