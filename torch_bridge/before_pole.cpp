#include "torch_bridge/before_pole.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <mutex>
#include <unordered_map>
#include <utility>
#include <vector>

#include "sensitivity/key.h"
#include "torch_bridge/codec_adapter.h"
#include "torch_bridge/torch_record.h"

namespace pleat::bridge {
namespace {

using torch::autograd::Node;

constexpr std::size_t kMostNodes = 16;  // looked at from one pole
// A sum of more elements than that has its pole far from theirs.
constexpr std::int64_t kMostSummed = 16;

constexpr std::uint64_t kNew = 4;   // backward passes since a lesson was first asked for
constexpr std::uint64_t kWait = 8;  // nodes
constexpr std::size_t kMostWaiting = 16;
constexpr std::size_t kMostKnown = 4096;  // shapes that change make new ones without end

struct Waiting {
  c10::Storage storage;
  allocator::Block* block;  // of `storage`, which lives
  std::uint64_t lesson;
  std::uint64_t until;
};

struct WaitingList {
  std::mutex mutex;
  std::vector<Waiting> waiting;  // oldest first
  std::uint64_t nodes = 0;
  std::unordered_map<std::uint64_t, std::uint64_t> first_pass;  // of a lesson
  std::atomic<bool> any{false};
};

WaitingList& waiting_list() {
  static auto* const list = new WaitingList;  // leaked: used until the process ends
  return *list;
}

// Lets go of the oldest `count`, which may be compressed at that: not under the lock.
void let_go(WaitingList& list, std::unique_lock<std::mutex> guard, std::size_t count) {
  const auto end = list.waiting.begin() + static_cast<std::ptrdiff_t>(count);
  std::array<c10::Storage, kMostWaiting + 1> gone;
  std::transform(list.waiting.begin(), end, gone.begin(), [](Waiting& w) { return std::move(w.storage); });
  list.waiting.erase(list.waiting.begin(), end);
  list.any.store(!list.waiting.empty(), std::memory_order_relaxed);
  guard.unlock();
}

// Unlike a tensor's family without its type, and without the last dimension where that is the batch's.
std::uint64_t lesson_of(const Product& product, at::IntArrayRef sizes) noexcept {
  constexpr std::uint64_t kBeforePole = 0x706f6c65;
  sensitivity::KeyParts parts;
  parts.producer = class_of(*product.producer).hash;
  parts.ancestors = ancestors_hash(*product.producer);
  parts.output_number = product.output_number;
  parts.rank = static_cast<std::uint32_t>(sizes.size());
  parts.last_dimension = sizes.size() > 1 ? sizes.back() : 0;
  parts.is_output = product.is_output;
  return sensitivity::mix(sensitivity::family_key(parts) ^ kBeforePole);
}

c10::DimVector sizes_of(const Node& producer, std::uint32_t output_number) {
  c10::DimVector sizes;
  for (const c10::SymInt& size : producer.input_metadata(output_number).shape_as_dim_vector()) {
    sizes.push_back(size.expect_int());
  }
  return sizes;
}

void teach(Runtime& runtime, const Product& product) {
  const std::uint64_t lesson = lesson_of(product, sizes_of(*product.producer, product.output_number));
  runtime.learn(lesson, static_cast<std::uint8_t>(Care::kExact));
  runtime.knows_poles.store(true, std::memory_order_release);
  WaitingList& list = waiting_list();
  const std::lock_guard<std::mutex> guard(list.mutex);
  for (const Waiting& waiting : list.waiting) {
    if (waiting.lesson == lesson) {
      runtime.residency.with_linked(waiting.block, [](allocator::Record* record) -> allocator::Record* {
        if (record != nullptr) {
          CodecChoice choice = CodecChoice::unpack(record->choice);
          choice.bits = 0;
          record->choice = choice.pack();
        }
        return nullptr;
      });
    }
  }
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

bool passes(const Node& node) {
  const NodeClass& c = class_of(node);
  if (c.before_pole != BeforePole::kSums) {
    return c.before_pole != BeforePole::kEnds;
  }
  bool few = true;
  for_each_input(node, [&](const Node& input, std::uint32_t output_number) {
    few = few && elements(input, output_number) <= kMostSummed * elements(node, 0);
  });
  return few;
}

}  // namespace

void teach_before_pole(Runtime& runtime, const Node& producer) noexcept {
  try {
    std::array<const Node*, kMostNodes> nodes{&producer};
    std::size_t found = 1;
    for (std::size_t next = 0; next < found; ++next) {
      const Node& node = *nodes[next];
      if (!passes(node)) {
        continue;
      }
      const BeforePole role = class_of(node).before_pole;
      if (role == BeforePole::kSavesResult) {
        teach(runtime, {&node, 0, /*is_output=*/true});
        continue;
      }
      std::size_t inputs = 0;
      for_each_input(node, [&](const Node&, std::uint32_t) { ++inputs; });
      for_each_input(node, [&](const Node& input, std::uint32_t output_number) {
        // Of a product with a constant the backward reads the constant.
        if (role == BeforePole::kSavesInput || (role == BeforePole::kSavesFactors && inputs > 1)) {
          teach(runtime, {&input, output_number, /*is_output=*/false});
        }
        const auto end = nodes.begin() + static_cast<std::ptrdiff_t>(found);
        if (found < kMostNodes && std::find(nodes.begin(), end, &input) == end) {
          nodes[found++] = &input;
        }
      });
    }
  } catch (...) {  // of symbolic size, nested: no lesson
  }
}

Care care_before_pole(Runtime& runtime, const Product& product, at::IntArrayRef sizes) noexcept {
  if (!runtime.knows_poles.load(std::memory_order_acquire)) [[likely]] {
    return Care::kNone;
  }
  return static_cast<Care>(runtime.learned(lesson_of(product, sizes)));
}

void wait_for_pole(Runtime& runtime, const at::Tensor& tensor, allocator::Block* block,
                   const Product& product) noexcept {
  const std::uint64_t lesson = lesson_of(product, tensor.sizes());
  const std::uint64_t pass = runtime.backward_passes.load(std::memory_order_relaxed);
  try {
    WaitingList& list = waiting_list();
    std::unique_lock<std::mutex> guard(list.mutex);
    if (list.first_pass.size() >= kMostKnown && !list.first_pass.contains(lesson)) {
      return;
    }
    if (pass - list.first_pass.try_emplace(lesson, pass).first->second >= kNew) [[likely]] {
      return;
    }
    list.waiting.push_back({tensor.storage(), block, lesson, list.nodes + kWait});
    let_go(list, std::move(guard), list.waiting.size() > kMostWaiting ? 1 : 0);
  } catch (...) {  // then it does not wait
  }
}

void shorten_wait_for_pole() noexcept {
  WaitingList& list = waiting_list();
  if (!list.any.load(std::memory_order_relaxed)) [[likely]] {
    return;
  }
  std::unique_lock<std::mutex> guard(list.mutex);
  ++list.nodes;
  const auto young = std::find_if(list.waiting.begin(), list.waiting.end(),
                                  [&](const Waiting& w) { return w.until >= list.nodes; });
  let_go(list, std::move(guard), static_cast<std::size_t>(young - list.waiting.begin()));
}

void end_wait_for_pole() noexcept {
  WaitingList& list = waiting_list();
  if (list.any.load(std::memory_order_relaxed)) {
    std::unique_lock<std::mutex> guard(list.mutex);
    let_go(list, std::move(guard), list.waiting.size());
  }
}

void lock_wait_for_pole_for_fork() noexcept { waiting_list().mutex.lock(); }
void unlock_wait_for_pole_after_fork() noexcept { waiting_list().mutex.unlock(); }

}  // namespace pleat::bridge
