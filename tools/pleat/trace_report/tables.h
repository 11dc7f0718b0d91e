// The rows of a page's tables by place: live bytes at the moment, and sums over the
// whole trace.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "watch.h"

namespace pleat::cli {

// Rows of a table. Of places, those beyond are added up in one more.
inline constexpr std::size_t kMostPlaces = 1000;

struct PlaceRow {
  PlaceKey place;
  bool rest = false;          // all that have no row
  trace::ClassBytes bytes{};  // at the moment
  std::uint64_t blocks = 0;
  std::int64_t would_be = 0;  // bytes at the moment, with other bits
  RunSums run;

  [[nodiscard]] std::int64_t live() const noexcept { return trace::sum_of(bytes); }
};

// The most live bytes first, then the most allocated. Filters hold for the moment only.
[[nodiscard]] std::vector<PlaceRow> place_rows(const DeviceReport& device, bool by_line);

// Which filters a page was made with: "operator with gelu, class payloads"; empty: none.
[[nodiscard]] std::string report_filter_text(const TraceReportRequest& request);

}  // namespace pleat::cli
