#include "profile_output.h"

#include <cmath>
#include <cstdio>
#include <cstring>

#include "program.h"
#include "torch_bridge/core/option_text.h"

namespace pleat::cli {

std::optional<sensitivity::Profile> load_profile(const std::string& path) {
  sensitivity::ReadResult result = sensitivity::read_profile(path);
  if (result.status == sensitivity::ReadStatus::kOk) return std::move(result.profile);
  say("pleat: {}: {}\n", bridge::printable(path), result.message);
  return std::nullopt;
}

bool put(std::string_view text) {
  const bool written =
      std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0;
  if (!written) say("pleat: standard output: {}\n", std::strerror(errno));
  return written;
}

bool put_json(const Json& json) {
  return put(json.dump(2, ' ', false, Json::error_handler_t::replace) + '\n');
}

Json number(double value) { return std::isfinite(value) ? Json(value) : Json(); }

Json identity(const sensitivity::Unit& unit) {
  return {{"key", hexadecimal(unit.key)}, {"producer", unit.producer},
          {"reader", unit.reader},        {"type", unit.type},
          {"shape", unit.shape},          {"tensors", unit.tensors},
          {"bytes", unit.bytes}};
}

Json stability_json(const ProfileFigures& figures) {
  if (!figures.stability) return {};
  return {{"first_step", figures.stability->first},
          {"last_step", figures.stability->last},
          {"rank_correlation", number(figures.stability->correlation)}};
}

Json summary(const ProfileFigures& figures) {
  const sensitivity::Profile& profile = *figures.profile;
  const bool known = figures.measured > 0;
  Json json;
  json["torch"] = profile.torch.empty() ? Json() : Json(profile.torch);
  json["steps"] = profile.steps;
  json["passes"] = profile.passes;
  json["seconds"] = number(profile.seconds);
  json["bits"] = figures.bits;
  json["mean_bits"] = number(figures.mean_bits);
  json["units_lossy"] = figures.lossy;
  json["units_measured"] = figures.measured;
  json["units_distrusted"] = figures.distrusted;
  json["bytes"] = figures.bytes;
  json["lossy_bytes"] = figures.lossy_bytes;
  json["measured_bytes"] = figures.measured_bytes;
  json["payload_bytes"] = figures.payload_bytes;
  json["lossy_payload_bytes"] = figures.lossy_payload_bytes;
  json["uniform_lossy_payload_bytes"] = figures.uniform_bytes;
  json["fits"] = figures.fits;
  json["objective"] = sensitivity::name_of(figures.profile->objective);
  json["noise"] = number(known ? figures.noise : kUnknown);
  json["uniform_noise"] = number(known ? figures.uniform_noise : kUnknown);
  json["least_noise"] = number(known ? figures.least_noise : kUnknown);
  json["gap"] = number(figures.gap());
  json["measured_steps"] = figures.steps;
  json["stability"] = stability_json(figures);
  return json;
}

}  // namespace pleat::cli
