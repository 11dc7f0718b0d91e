// The state that a process has once: heaps, codec, options and counters. Built by install and
// leaked on purpose: tensors are freed until the very end of the process, after static destructors
// have run.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>

#include "allocator/heap.h"
#include "allocator/host/pool.h"
#include "allocator/host_heap.h"
#include "allocator/lifecycle/residency.h"
#include "allocator/statistics.h"
#include "torch_bridge/core/codec_adapter.h"
#include "torch_bridge/core/device_facts.h"
#include "torch_bridge/core/fork_locks.h"
#include "torch_bridge/core/options.h"
#include "torch_bridge/core/proof_book.h"
#include "torch_bridge/core/reasons.h"
#include "torch_bridge/measure/book/bits_by_key.h"
#include "torch_bridge/measure/book/check_book.h"
#include "torch_bridge/measure/book/sensitivity_book.h"

namespace pleat::bridge {

class Runtime {
 public:
  explicit Runtime(const Options& options, compress::Executor executor);

  // Null until install succeeded. Leaked: see above.
  [[nodiscard]] static Runtime* get() noexcept { return instance_.load(std::memory_order_acquire); }
  static void publish(Runtime* runtime) noexcept {
    instance_.store(runtime, std::memory_order_release);
  }

  [[nodiscard]] Options options() const;
  void set_options(const Options& options);  // min_bytes of the allocator follows too
  // The behaviour of heaps depends on more than the options: on whether a peak is known, a check
  // watches, a trace is written. After a change of one of these.
  void renew_heaps();
  // Those of every heap, as the options are now.
  [[nodiscard]] allocator::ResidencyOptions residency_options() const;

  // True if tensors of this thread may be tagged now.
  [[nodiscard]] bool tagging() const noexcept;
  void set_enabled(bool enabled) noexcept { enabled_.store(enabled, std::memory_order_relaxed); }
  [[nodiscard]] bool enabled() const noexcept { return enabled_.load(std::memory_order_relaxed); }
  // A forked child or a process past exit: never tags or encodes again, frees only.
  void retire() noexcept;
  [[nodiscard]] bool retired() const noexcept { return residency.stopped(); }

  static void exempt_enter() noexcept;
  static void exempt_exit() noexcept;

  // True in a thread that has saved or restored a tensor: one that runs operators, with ATen's
  // threads beside it.
  static void note_thread_computes() noexcept;
  [[nodiscard]] static bool thread_computes() noexcept;
  // Counts the calls of this thread.
  [[nodiscard]] static unsigned next_turn() noexcept;

  // ---- the parts ----
  CodecAdapter codec;
  allocator::HostHeap host;
  allocator::HeapTable heaps;  // the host's among them
  DeviceTable devices;         // without the host
  allocator::Pool& pool{host.pool()};
  allocator::Residency& residency{host.heap().residency()};
  allocator::Statistics& statistics{host.heap().statistics()};

  // ---- read on hot paths, written by set_options ----
  std::atomic<std::size_t> min_bytes{0};
  std::atomic<bool> copy_raw{false};
  std::atomic<bool> waits_for_forward_end{false};
  std::atomic<bool> reuse_gradients{true};
  std::atomic<bool> recompute{true};
  std::atomic<Rule> rule{Rule::kProof};

  // ---- bookkeeping ----
  ReasonCounts reasons;
  ExactnessCounts exactness;
  CheckBook check;  // of `pleat check`: how far noise changes the gradients
  // Nodes whose saved tensors were noisy already when a pole was recorded behind them.
  std::atomic<std::uint64_t> poles_after_proof{0};
  ProofBook proofs;
  [[nodiscard]] std::uint64_t next_nonce() noexcept;

  BitsByKey bits;                     // widths: written by the options and by what follows
  SensitivityBook sensitivity{bits};  // that

  // An outermost backward pass of any thread begins.
  void begin_backward() noexcept;
  std::atomic<std::uint64_t> backward_passes{0};
  std::atomic<std::uint64_t> live_at_unpack{0}, unpacks{0}, packs{0}, reused{0}, swapped{0};
  std::atomic<std::uint64_t> gradients_reused{0}, gradient_bytes_reused{0};
  std::atomic<std::uint64_t> hook_ns_sampled{0}, hook_samples{0};
  std::atomic<bool> interposed{false};

 private:
  void renew_heaps_locked();

  static std::atomic<Runtime*> instance_;
  ForkLock heap_fork_lock_{ForkPlace::kHeap, host};
  mutable std::mutex options_mutex_;
  ForkLock options_fork_lock_{ForkPlace::kOptions, options_mutex_};
  Options options_;
  std::atomic<bool> enabled_{true};
  std::atomic<std::uint64_t> saves_{0}, seed_{0};
  std::uint64_t rank_ = 0;
};

}  // namespace pleat::bridge
