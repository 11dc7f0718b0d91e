// The libFuzzer entry for the text of a profile. An accepted text is written and read again, and
// widths can be assigned to it. A refusal takes one line.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

#include "sensitivity/sensitivity.h"

namespace {

using namespace pleat::sensitivity;

void expect(bool holds, const char* what) {
  if (!holds) {
    std::fprintf(stderr, "wrong: %s\n", what);
    std::abort();
  }
}

void use(Profile profile) {
  const std::string text = to_json(profile);
  ReadResult again = from_json(text);
  expect(again.status == ReadStatus::kOk, "what was accepted is not read again");
  expect(to_json(again.profile) == text, "it comes back as something else");
  for (const double bits : {1.0, 3.5, 8.0}) {
    const Assignment assignment = assign(profile, bits);
    expect(!assignment.fits || assignment.bytes <= assignment.budget, "too many bytes");
    expect(assignment.least_noise <= assignment.noise, "less noise than the bound");
    const double equivalent = equivalent_bits(profile, assignment.bytes);
    expect(equivalent >= 1 && equivalent <= 8, "bits that no uniform width has");
  }
  const std::size_t units = profile.units.size();
  merge_into(profile, again.profile);
  expect(profile.units.size() == units, "merged with itself it has grown");
  (void)rank_correlation(profile, 0, 1);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  ReadResult result = from_json(text);
  const bool one_line = result.message.find('\n') == std::string::npos;
  expect(one_line && result.message.empty() == (result.status == ReadStatus::kOk), "the message");
  const bool marked = text.substr(0, 4096).find("\"pleat_profile\"") != std::string_view::npos;
  expect((result.status == ReadStatus::kForeign) == !marked, "what counts as a profile");
  if (result.status == ReadStatus::kOk) {
    use(std::move(result.profile));
  }
  return 0;
}
