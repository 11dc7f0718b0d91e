#include "torch_bridge/before_pole.h"

#include <algorithm>
#include <array>
#include <cstddef>

#include "sensitivity/key.h"

namespace pleat::bridge {
namespace {

using torch::autograd::Node;

constexpr std::size_t kMostNodes = 16;  // looked at from one pole
// A sum of more elements than that has its pole far from theirs.
constexpr std::int64_t kMostSummed = 16;

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
    runtime.learn(lesson_before_pole({product.producer, product.output_number, saver}, sizes),
                  needs.pack());
  }
  runtime.knows_poles.store(true, std::memory_order_release);
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

bool sums_many(const Node& node) {
  bool many = false;
  for_each_input(node, [&](const Node& input, std::uint32_t output_number) {
    many = many || elements(input, output_number) > kMostSummed * elements(node, 0);
  });
  return many;
}

// Reads its argument, or its factors. Of a product with a constant the backward reads the constant.
bool reads_inputs(const Node& node, BeforePole role) {
  std::size_t inputs = 0;
  for_each_input(node, [&](const Node&, std::uint32_t) { ++inputs; });
  return role == BeforePole::kSavesInput || role == BeforePole::kVariance ||
         (role == BeforePole::kSavesFactors && inputs > 1);
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

void teach_before_pole(Runtime& runtime, const Node& producer) noexcept {
  struct Found {
    const Node* node;
    bool of_row;  // a sum of many lies between: the pole is where a whole row is zero
  };
  try {
    std::array<Found, kMostNodes> all{{{&producer, false}}};
    std::size_t found = 1;
    for (std::size_t next = 0; next < found; ++next) {
      const Node& node = *all[next].node;
      const BeforePole role = class_of(node).before_pole;
      const bool of_row = all[next].of_row || role == BeforePole::kVariance ||
                          (role == BeforePole::kSums && sums_many(node));
      if (role == BeforePole::kSavesResult && !of_row) {
        teach(runtime, {&node, 0, kSavedByProducer}, Care::kExact);
      }
      if (role == BeforePole::kEnds || role == BeforePole::kSavesResult) {
        continue;
      }
      const bool reads = reads_inputs(node, role);
      for_each_input(node, [&](const Node& input, std::uint32_t output_number) {
        if (reads) {
          teach(runtime, {&input, output_number, class_of(node).hash},
                of_row ? Needs(Care::kNone, Rows::kLastDimension) : Needs(Care::kExact));
        }
        const auto end = all.begin() + static_cast<std::ptrdiff_t>(found);
        const bool known =
            std::any_of(all.begin(), end, [&](const Found& f) { return f.node == &input; });
        if (found < kMostNodes && !known && !(reads && of_row)) {
          all[found++] = {&input, of_row};
        }
      });
    }
  } catch (...) {  // of symbolic size, nested: no lesson
  }
}

Needs needs_before_pole(Runtime& runtime, const Product& product, at::IntArrayRef sizes) noexcept {
  if (!runtime.knows_poles.load(std::memory_order_acquire)) [[likely]] {
    return {};
  }
  return Needs::unpack(runtime.learned(lesson_before_pole(product, sizes)));
}

}  // namespace pleat::bridge
