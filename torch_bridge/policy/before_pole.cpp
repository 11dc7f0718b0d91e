#include "torch_bridge/policy/before_pole.h"

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <limits>
#include <string_view>

#include "sensitivity/key.h"

namespace pleat::bridge {
namespace {

using torch::autograd::Node;

constexpr std::size_t kMostNodes = 16;  // looked at from one pole
// A sum of more elements than that has its pole far from theirs, unless it comes close to it all
// the same. The 8 bits of a softmax or exponential leave an error of 1/900 in each of its elements.
constexpr std::int64_t kMostSummed = 16;
constexpr double kClose = 0.25;

c10::DimVector sizes_of(const Node& producer, std::uint32_t output_number) {
  c10::DimVector sizes;
  TORCH_CHECK(output_number < producer.num_inputs());
  for (const c10::SymInt& size : producer.input_metadata(output_number).shape_as_dim_vector()) {
    sizes.push_back(size.expect_int());
  }
  return sizes;
}

void teach(Runtime& runtime, const Product& product, Needs needs) {
  const c10::DimVector sizes = sizes_of(*product.producer, product.output_number);
  for (const std::uint64_t saver : {product.saver, std::uint64_t{0}}) {  // for who does not know it
    runtime.lessons.learn(
        lesson_before_pole({product.producer, product.output_number, saver}, sizes), needs);
  }
  runtime.lessons.note_pole();
}

std::int64_t elements(const Node& producer, std::uint32_t output_number) {
  return c10::multiply_integers(sizes_of(producer, output_number));
}

// The inputs of `node` for which its backward computes a gradient.
template <class Visit>
void for_each_input(const Node& node, Visit&& visit) {
  for (const torch::autograd::Edge& edge : node.next_edges()) {
    if (edge.is_valid()) {
      visit(*edge.function, edge.input_nr);
    }
  }
}

std::int64_t most_summed(const Node& node) {
  const std::int64_t sums = std::max<std::int64_t>(1, elements(node, 0));  // of no rows: none
  std::int64_t most = 0;
  for_each_input(node, [&](const Node& input, std::uint32_t output_number) {
    most = std::max(most, elements(input, output_number) / sums);
  });
  return most;
}

// How close an operator comes to its pole, by what it saves: its argument x, or its result, which
// is the root of x, or 1 / x, or the root of that.
class Sight {
 public:
  Sight(const at::TensorBase& saved, const Node& producer, bool is_result)
      : saved_(saved),
        inverse_(is_result && !std::string_view(class_of(producer).name).starts_with("Sqrt")) {}

  // Some |x|, or for want of it a root, is below kClose / scale.
  [[nodiscard]] bool is_close(std::int64_t scale) {
    if (!looked_) {
      extremes_ = look();
      looked_ = true;
    }
    const double close = kClose / static_cast<double>(scale);
    return inverse_ ? extremes_.most > 1 / close : extremes_.least < close;
  }

 private:
  struct Extremes {
    double least = 0;  // of what cannot be read: close
    double most = std::numeric_limits<double>::infinity();
  };

  template <class Value>
  Extremes look_at(std::int64_t count) const {
    const auto* const values = static_cast<const Value*>(saved_.const_data_ptr());
    Extremes found{std::numeric_limits<double>::infinity(), 0};
    for (std::int64_t i = 0; i < count; ++i) {
      const double magnitude = std::abs(static_cast<double>(values[i]));
      found.least = std::min(found.least, magnitude);
      found.most = std::max(found.most, magnitude);
    }
    return found;
  }

  // 0 where they are not all there is from the first to the last.
  [[nodiscard]] std::int64_t distinct_elements() const {
    std::int64_t distinct = 1;
    std::int64_t extent = 1;
    for (std::int64_t i = 0; i < saved_.dim(); ++i) {
      if (saved_.stride(i) != 0) {  // expanded
        distinct *= saved_.size(i);
        extent += (saved_.size(i) - 1) * saved_.stride(i);
      }
    }
    return saved_.numel() != 0 && distinct == extent ? distinct : 0;
  }

  [[nodiscard]] Extremes look() const {
    if (!saved_.device().is_cpu() || !saved_.has_storage() || saved_.storage().data() == nullptr) {
      return {};
    }
    const std::int64_t count = distinct_elements();
    if (count == 0) {
      return {};
    }
    switch (saved_.scalar_type()) {
      case at::kFloat:
        return look_at<float>(count);
      case at::kDouble:
        return look_at<double>(count);
      case at::kBFloat16:
        return look_at<c10::BFloat16>(count);
      case at::kHalf:
        return look_at<c10::Half>(count);
      default:
        return {};
    }
  }

  const at::TensorBase& saved_;
  bool inverse_;
  bool looked_ = false;
  Extremes extremes_;
};

// Reads its argument, or its factors. Of a product with a constant the backward reads the constant.
bool reads_inputs(const Node& node, BeforePole role) {
  std::size_t inputs = 0;
  for_each_input(node, [&](const Node&, std::uint32_t) { ++inputs; });
  return role == BeforePole::kSavesInput || role == BeforePole::kVariance ||
         ((role == BeforePole::kSavesFactors || role == BeforePole::kMixes) && inputs > 1);
}

// A factor of `node` is a softmax, an exponential or their like, masked or moved perhaps.
bool mixes_results(const Node& node, int most_nodes = 4) {
  bool found = false;
  for_each_input(node, [&](const Node& input, std::uint32_t) {
    const BeforePole role = class_of(input).before_pole;
    found = found || role == BeforePole::kSavesResult ||
            ((role == BeforePole::kPasses || role == BeforePole::kSavesFactors) && most_nodes > 1 &&
             mixes_results(input, most_nodes - 1));
  });
  return found;
}

// h * h
bool is_square(const Node& node) {
  const auto& edges = node.next_edges();
  return edges.size() == 2 && edges[0].is_valid() && edges[0] == edges[1];
}

// What lies between a pole and what it looks back at.
enum class Between : std::uint8_t {
  kElements,      // each element has a pole of its own
  kCloseSum,      // a sum of many, or a matrix product, that comes close to the pole
  kRows,          // a sum of many otherwise: the pole is where a whole row is zero
  kNothingKnown,  // the search ends
};

// Between the pole and the inputs of `node`, if `so_far` lies between it and the node.
Between between_behind(const Node& node, BeforePole role, Between so_far, Sight& sight) {
  switch (role) {
    case BeforePole::kEnds:
      return Between::kNothingKnown;
    case BeforePole::kVariance:
      return Between::kRows;
    case BeforePole::kMixes:
      return so_far != Between::kRows && sight.is_close(1) && mixes_results(node)
                 ? Between::kCloseSum
                 : Between::kNothingKnown;
    case BeforePole::kSums:
    case BeforePole::kAverages: {
      const std::int64_t summed = so_far != Between::kRows ? most_summed(node) : 0;
      if (summed <= kMostSummed) {
        return so_far;
      }
      return sight.is_close(role == BeforePole::kAverages ? summed : 1) ? Between::kCloseSum
                                                                        : Between::kRows;
    }
    default:
      return so_far;
  }
}

}  // namespace

// Unlike a tensor's family without its type, and without the last dimension where that is the
// batch's.
std::uint64_t lesson_before_pole(const Product& product, at::IntArrayRef sizes) noexcept {
  constexpr std::uint64_t kBeforePole = 0x706f6c65;
  sensitivity::KeyParts parts;
  parts.producer = class_of(*product.producer).hash;
  parts.ancestors = ancestors_hash(*product.producer);
  parts.output_number = product.output_number;
  parts.rank = static_cast<std::uint32_t>(sizes.size());
  parts.last_dimension = sizes.size() > 1 ? sizes.back() : 0;
  return sensitivity::mix(sensitivity::family_key(parts) ^
                          sensitivity::mix(kBeforePole ^ product.saver));
}

void teach_before_pole(Runtime& runtime, const Node& producer, const at::TensorBase& saved,
                       bool is_result) noexcept {
  struct Found {
    const Node* node;
    Between between;
  };
  try {
    Sight sight(saved, producer, is_result);
    std::array<Found, kMostNodes> all{{{&producer, Between::kElements}}};
    std::size_t found = 1;
    for (std::size_t next = 0; next < found; ++next) {
      const Node& node = *all[next].node;
      const BeforePole role = class_of(node).before_pole;
      const Between between = between_behind(node, role, all[next].between, sight);
      if (role == BeforePole::kSavesResult && between != Between::kRows) {
        teach(runtime, {&node, 0, kSavedByProducer}, Care::kExact);
      }
      if (between == Between::kNothingKnown ||
          (role == BeforePole::kSavesResult && between != Between::kElements)) {
        continue;
      }
      const bool reads = reads_inputs(node, role);
      // Of a square the noise is as its row's, however small that is.
      const bool by_row =
          between == Between::kRows ||
          (between == Between::kCloseSum && (role == BeforePole::kSavesInput || is_square(node)));
      for_each_input(node, [&](const Node& input, std::uint32_t output_number) {
        if (reads) {
          teach(runtime, {&input, output_number, class_of(node).hash},
                by_row ? Needs(Care::kNone, Rows::kLastDimension) : Needs(Care::kExact));
        }
        const auto end = all.begin() + static_cast<std::ptrdiff_t>(found);
        const bool known =
            std::any_of(all.begin(), end, [&](const Found& f) { return f.node == &input; });
        if (found < kMostNodes && !known && !(reads && by_row)) {
          all[found++] = {&input, between};
        }
      });
    }
  } catch (...) {  // of symbolic size, nested: no lesson
  }
}

Needs needs_before_pole(Runtime& runtime, const Product& product, at::IntArrayRef sizes) noexcept {
  if (!runtime.lessons.knows_poles()) [[likely]] {
    return {};
  }
  return runtime.lessons.learned(lesson_before_pole(product, sizes));
}

}  // namespace pleat::bridge
