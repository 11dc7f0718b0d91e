#include "torch_bridge/core/runtime.h"

#include <cstdlib>
#include <utility>

#include "sensitivity/sensitivity.h"
#include "torch_bridge/trace/state.h"

namespace pleat::bridge {
namespace {

thread_local struct {
  int exempt_depth = 0;
  bool computes = false;
  unsigned turn = 0;
} of_thread;

// Blocks that wait for a proof take at most half of the peak. An eighth made the peaks of four of
// ten models 4 to 34 % higher, a quarter that of one, because blocks that do not fit are exact. The
// peak of a step is unknown until a backward pass has begun. Until then waiting blocks take as much
// as without Pleat.
constexpr std::size_t kWaitingPartOfPeak = 2;
// Of what waits for a verdict nothing is lost but time, and little of that.
constexpr std::size_t kJudgedPartOfPeak = 16;

allocator::StoreForm form_of(const Options& o, bool keeps_blocks) noexcept {
  using Form = allocator::StoreForm;
  if (o.mode == Mode::kOff) return tracing() ? Form::kPlanned : Form::kRaw;
  if (keeps_blocks) return Form::kPayloadAndBlock;
  return o.place == Place::kInPlace ? Form::kInPlace : Form::kPayload;
}

allocator::ResidencyOptions options_of_heaps(const Options& o, bool peak_is_known,
                                             bool keeps_blocks) {
  return {.form = form_of(o, keeps_blocks),
          .waiting_part_of_peak = peak_is_known ? kWaitingPartOfPeak : 0,
          .judged_part_of_peak = peak_is_known ? kJudgedPartOfPeak : 0};
}

std::uint64_t rank_from_environment() noexcept {
  for (const char* name : {"RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK"}) {
    if (const char* value = std::getenv(name); value != nullptr && *value != '\0') {
      return std::strtoull(value, nullptr, 10);
    }
  }
  return 0;
}

allocator::HugePages huge_pages(HugePages wanted) noexcept {
  switch (wanted) {
    case HugePages::kAlways:
      return allocator::HugePages::kAlways;
    case HugePages::kNever:
      return allocator::HugePages::kNever;
    case HugePages::kAuto:
      break;
  }
  return allocator::HugePages::kAuto;
}

}  // namespace

std::atomic<Runtime*> Runtime::instance_{nullptr};

Runtime::Runtime(const Options& options, compress::Executor executor)
    : codec(std::move(executor), options.copy_raw),
      host(codec, options_of_heaps(options, false, options.check != 0),
           huge_pages(options.huge_pages)),
      rank_(rank_from_environment()) {
  heaps.add(host.heap());
  set_options(options);
}

Options Runtime::options() const {
  const std::lock_guard<std::mutex> guard(options_mutex_);
  return options_;
}

void Runtime::set_options(const Options& options) {
  const std::lock_guard<std::mutex> guard(options_mutex_);
  options_ = options;
  min_bytes.store(options.min_bytes, std::memory_order_relaxed);
  bits.set_uniform(options.mode == Mode::kLossless
                       ? std::uint8_t{0}
                       : static_cast<std::uint8_t>(sensitivity::uniform_width(options.bits)));
  seed_.store(options.seed, std::memory_order_relaxed);
  copy_raw.store(options.copy_raw, std::memory_order_relaxed);
  waits_for_forward_end.store(options.when == When::kForwardEnd, std::memory_order_relaxed);
  reuse_gradients.store(options.reuse_gradients, std::memory_order_relaxed);
  recompute.store(options.recompute, std::memory_order_relaxed);
  rule.store(options.rule, std::memory_order_relaxed);
  proofs.trust_names(options.trust);
  codec.set_copy_raw(options.copy_raw);
  check.ask(options.check, options.check_file);
  sensitivity.ask(options, rank_);
  renew_heaps_locked();
}

void Runtime::renew_heaps() {
  const std::lock_guard<std::mutex> guard(options_mutex_);
  renew_heaps_locked();
}

void Runtime::renew_heaps_locked() {
  const allocator::ResidencyOptions of_heaps = options_of_heaps(
      options_, backward_passes.load(std::memory_order_relaxed) != 0, check.watching());
  heaps.for_each([&](allocator::Heap& heap) { heap.residency().set_options(of_heaps); });
}

allocator::ResidencyOptions Runtime::residency_options() const {
  return options_of_heaps(options(), backward_passes.load(std::memory_order_relaxed) != 0,
                          check.watching());
}

bool Runtime::tagging() const noexcept {
  return enabled_.load(std::memory_order_relaxed) && of_thread.exempt_depth == 0 &&
         !residency.stopped();
}

void Runtime::retire() noexcept {
  set_enabled(false);
  heaps.for_each([](allocator::Heap& heap) { heap.residency().stop_encoding(); });
}

void Runtime::exempt_enter() noexcept { ++of_thread.exempt_depth; }
void Runtime::exempt_exit() noexcept {
  if (of_thread.exempt_depth > 0) {
    --of_thread.exempt_depth;
  }
}

void Runtime::note_thread_computes() noexcept { of_thread.computes = true; }
bool Runtime::thread_computes() noexcept { return of_thread.computes; }
unsigned Runtime::next_turn() noexcept { return ++of_thread.turn; }

std::uint64_t Runtime::next_nonce() noexcept {
  return sensitivity::payload_nonce(seed_.load(std::memory_order_relaxed), rank_,
                                    saves_.fetch_add(1, std::memory_order_relaxed));
}

void Runtime::begin_backward() noexcept {
  if (backward_passes.fetch_add(1, std::memory_order_relaxed) == 0) {
    renew_heaps();  // a peak is known now
  }
  heaps.for_each([](allocator::Heap& heap) {
    if (heap.residency().any_waiting()) {
      note_thread_computes();
      heap.residency().forward_end();
    }
  });
}

}  // namespace pleat::bridge
