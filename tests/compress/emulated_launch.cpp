#include "tests/compress/emulated_launch.h"

#include <initializer_list>
#include <utility>

#include "tests/compress/emulated_kernels.h"

namespace pleat::compress::test {
namespace {

using cuda::Batch;
using cuda::Job;
using cuda::LineBatch;

// Cuts the first of `words` that `text` begins with off.
template <class Value>
std::optional<Value> take(std::string* text,
                          std::initializer_list<std::pair<const char*, Value>> words) {
  for (const auto& [word, value] : words)
    if (text->starts_with(word)) {
      text->erase(0, std::string(word).size());
      return value;
    }
  return std::nullopt;
}

unsigned number(ElementType type) {
  return type == ElementType::kBool ? 3 : type == ElementType::kInt64 ? 4 : 5;
}

Kernel form_of(const NamedKernel& kernel) {
  return {kernel.type, kernel.bits,
          kernel.coding == Coding::kScaled        ? Transform::kHadamardScaled
          : kernel.coding == Coding::kTransformed ? Transform::kHadamard
                                                  : Transform::kNone};
}

// Blocks take their turns one after the other.
auto in_turn() {
  return [turn = 0u](unsigned blocks) mutable { return turn++ % blocks; };
}
constexpr unsigned kBlocks = 3;

bool run_job(const NamedKernel& kernel, const Job& job) {
  switch (kernel.verb) {
    case Verb::kMoveTo:
      emulate_move_to_sides(kernel.type, job);
      return true;
    case Verb::kKeepNearZero:
      emulate_keep_near_zero(kernel.type, job, in_turn());
      return true;
    case Verb::kRestoreNearZero:
      emulate_restore_near_zero(kernel.type, job, in_turn());
      return true;
    case Verb::kSketch:
      emulate_sketch(kernel.type, job, in_turn());
      return true;
    case Verb::kMeasureParts:
      emulate_measure_parts(kernel.type, job);
      return true;
    case Verb::kSurvey:
      emulate_survey(kernel.type, job);
      return true;
    case Verb::kEncodeInPlace: {
      InPlaceTurns turns;
      return emulate_in_place(form_of(kernel), job, kBlocks, in_turn(), &turns);
    }
    default:
      break;
  }
  const bool encodes = kernel.verb == Verb::kEncode;
  if (kernel.coding == Coding::kSides)
    encodes ? emulate_encode_sides(kernel.type, job) : emulate_decode_sides(kernel.type, job);
  else if (!is_floating(kernel.type))
    encodes ? emulate_pack(job, number(kernel.type)) : emulate_unpack(job, number(kernel.type));
  else
    encodes ? emulate_encode(form_of(kernel), job) : emulate_decode(form_of(kernel), job);
  return true;
}

}  // namespace

std::optional<NamedKernel> kernel_named(std::string name) {
  const auto verb = take<Verb>(&name, {{"pleat_encode_in_place_", Verb::kEncodeInPlace},
                                       {"pleat_encode_", Verb::kEncode},
                                       {"pleat_decode_", Verb::kDecode},
                                       {"pleat_survey_", Verb::kSurvey},
                                       {"pleat_measure_parts_", Verb::kMeasureParts},
                                       {"pleat_move_to_", Verb::kMoveTo},
                                       {"pleat_look_at_columns_", Verb::kLookAtColumns},
                                       {"pleat_keep_lines_", Verb::kKeepLines},
                                       {"pleat_restore_lines_", Verb::kRestoreLines},
                                       {"pleat_spread_", Verb::kSpread},
                                       {"pleat_mix_", Verb::kMix},
                                       {"pleat_keep_near_zero_", Verb::kKeepNearZero},
                                       {"pleat_restore_near_zero_", Verb::kRestoreNearZero},
                                       {"pleat_sketch_", Verb::kSketch}});
  if (!verb) return std::nullopt;
  const auto coding = take<Coding>(&name, {{"transformed_", Coding::kTransformed},
                                           {"scaled_", Coding::kScaled},
                                           {"framed_", Coding::kFramed},
                                           {"sides_", Coding::kSides},
                                           {"", Coding::kPlain}});
  const auto type = take<ElementType>(&name, {{"float32", ElementType::kFloat32},
                                              {"bfloat16", ElementType::kBFloat16},
                                              {"float16", ElementType::kFloat16},
                                              {"bool", ElementType::kBool},
                                              {"int64", ElementType::kInt64},
                                              {"int32", ElementType::kInt32}});
  if (!type) return std::nullopt;
  NamedKernel kernel{*verb, *coding, *type, 0};
  if (name.size() == 2 && name[0] == '_' && name[1] >= '0' && name[1] <= '8')
    kernel.bits = static_cast<unsigned>(name[1] - '0');
  else if (!name.empty())
    return std::nullopt;
  return kernel;
}

bool emulate_launch(const NamedKernel& kernel, const Batch& batch) {
  if (kernel.coding == Coding::kFramed) {
    FrameTurns turns;
    return emulate_frame_launch(kernel.type, kernel.verb == Verb::kEncode, batch, kBlocks,
                                in_turn(), &turns);
  }
  for (unsigned j = 0; j < batch.jobs; ++j)
    if (!run_job(kernel, batch.job[j])) return false;
  return true;
}

void emulate_launch(const NamedKernel& kernel, const LineBatch& batch) {
  for (unsigned j = 0; j < batch.jobs; ++j) {
    const cuda::LineJob& job = batch.job[j];
    if (kernel.verb == Verb::kLookAtColumns)
      emulate_look_at_columns(kernel.type, job, in_turn());
    else if (kernel.verb == Verb::kKeepLines)
      emulate_keep_lines(kernel.type, job, in_turn());
    else if (kernel.verb == Verb::kSpread)
      emulate_spread(kernel.type, job, in_turn());
    else if (kernel.verb == Verb::kMix)
      emulate_mix(kernel.type, job, in_turn());
    else
      emulate_restore_lines(kernel.type, job, in_turn());
  }
}

}  // namespace pleat::compress::test
