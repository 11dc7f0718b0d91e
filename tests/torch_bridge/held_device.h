// A CUDA device for tests of its codec: memory of the host, the driver's functions that the codec
// calls, and a launcher that runs the kernels' own code. Queued work can be held back, so that
// verdicts come late, one by one.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "allocator/cuda/driver.h"
#include "compress/cuda/device_codec.h"
#include "tests/compress/emulated_launch.h"

namespace pleat::bridge::cuda::testing {

class HeldDevice final : public compress::KernelLauncher {
 public:
  static constexpr int kLaunchFailed = 719;
  static constexpr std::size_t kStaged = 1024;
  struct Launch {
    std::string kernel;
    std::uint64_t stream;
    unsigned jobs;
    std::vector<const void*> verdicts;
  };

  HeldDevice() { present_ = this; }
  ~HeldDevice() override { present_ = nullptr; }
  HeldDevice(const HeldDevice&) = delete;
  HeldDevice& operator=(const HeldDevice&) = delete;

  // Functions that must not be called are null.
  static allocator::cuda::Driver driver() {
    allocator::cuda::Driver d;
    d.context_current = [](void** context) {
      *context = present_->has_context ? present_ : nullptr;
      return present_->answer();
    };
    d.context_device = [](int* device) {
      *device = 0;
      return present_->answer();
    };
    d.primary_state = [](int, unsigned* flags, int* active) {
      *flags = 0;
      *active = present_->has_context ? 1 : 0;
      return present_->answer();
    };
    d.host_allocate = [](void** host, std::size_t bytes, unsigned) {
      *host = present_->take(bytes);
      return present_->no_pinned_memory != 0 ? present_->no_pinned_memory : present_->answer();
    };
    d.host_address = [](std::uint64_t* device, void* host, unsigned) {
      *device = reinterpret_cast<std::uint64_t>(host);
      return present_->answer();
    };
    d.memory_allocate = [](std::uint64_t* device, std::size_t bytes) {
      *device = reinterpret_cast<std::uint64_t>(present_->take(bytes));
      return present_->answer();
    };
    d.set_bytes = [](std::uint64_t to, unsigned char value, std::size_t bytes, void* stream) {
      present_->queue(reinterpret_cast<std::uint64_t>(stream),
                      [=] { std::memset(reinterpret_cast<void*>(to), value, bytes); });
      return present_->answer();
    };
    // The driver reads few bytes of pageable memory at once, such as a table.
    d.copy = [](std::uint64_t to, std::uint64_t from, std::size_t bytes, void* stream) {
      const auto* const source = reinterpret_cast<const std::byte*>(from);
      const std::vector<std::byte> now(source, source + (bytes < kStaged ? bytes : 0));
      present_->queue(reinterpret_cast<std::uint64_t>(stream), [=] {
        std::memcpy(reinterpret_cast<void*>(to), now.empty() ? source : now.data(), bytes);
      });
      return present_->answer();
    };
    d.write_word = [](void* stream, std::uint64_t to, std::uint32_t value, unsigned) {
      present_->queue(reinterpret_cast<std::uint64_t>(stream), [=] {
        std::atomic_ref(*reinterpret_cast<std::uint32_t*>(to))
            .store(value, std::memory_order_release);
      });
      return present_->answer();
    };
    d.stream_capturing = [](void*, int* status) {
      *status = present_->captures ? 1 : 0;
      return present_->answer();
    };
    // The device is done with the stream whenever it is asked, unless it never answers.
    d.stream_query = d.stream_synchronize = [](void* stream) {
      const auto id = reinterpret_cast<std::uint64_t>(stream);
      present_->waits.fetch_add(1);
      if (!present_->never_answers) present_->run_stream(id);
      return present_->wait_error != 0 ? present_->wait_error : present_->answer();
    };
    return d;
  }

  compress::LaunchStatus prepare(const compress::DeviceImage& image) noexcept override {
    EXPECT_NE(image.bytes, 0u);
    return preparing;
  }

  compress::LaunchStatus launch(const compress::DeviceImage&, const char* name, unsigned,
                                unsigned threads, const void* parameter,
                                compress::StreamHandle stream) noexcept override {
    namespace test = compress::test;
    EXPECT_EQ(threads, compress::cuda::kThreads);
    const auto kernel = test::kernel_named(name);
    if (!kernel) {
      ADD_FAILURE() << "no kernel " << name;
      return compress::LaunchStatus::kFailed;
    }
    const std::lock_guard<std::mutex> guard(mutex_);
    if (launches_until_failure != kNone && launches_until_failure-- == 0) {
      return compress::LaunchStatus::kFailed;
    }
    Launch& noted = launches.emplace_back(Launch{name, stream.value, 0, {}});
    std::function<void()> run;
    if (kernel->is_of_lines()) {
      compress::cuda::LineBatch batch;
      std::memcpy(&batch, parameter, sizeof batch);
      run = work_of(*kernel, batch, &noted);
    } else {
      compress::cuda::Batch batch;
      std::memcpy(&batch, parameter, sizeof batch);
      run = work_of(*kernel, batch, &noted);
    }
    queue_locked(stream.value, std::move(run));
    return compress::LaunchStatus::kOk;
  }
  int driver_error() const noexcept override { return launch_error; }

  // Set by the test.
  static constexpr std::size_t kNone = SIZE_MAX;
  std::atomic<bool> holds{false};  // what is queued waits for run()
  bool has_context = true;
  bool captures = false;
  bool never_answers = false;  // a wait ends without the work
  bool damages = false;        // what an encode writes has one bit that is wrong
  int wait_error = 0;
  int no_pinned_memory = 0;  // the error
  int launch_error = kLaunchFailed;
  std::size_t launches_until_failure = kNone;
  compress::LaunchStatus preparing = compress::LaunchStatus::kOk;
  std::atomic<bool> gone{false};

  // Read by the test.
  std::vector<Launch> launches;
  std::atomic<int> waits{0}, calls{0};

  // Runs what was queued first; false if there is nothing.
  bool run_next() {
    const std::lock_guard<std::mutex> guard(mutex_);
    if (queue_.empty()) return false;
    const auto work = std::move(queue_.front().work);
    queue_.pop_front();
    work();
    return true;
  }
  void run() {
    while (run_next()) {
    }
  }

 private:
  struct Queued {
    std::uint64_t stream;
    std::function<void()> work;
  };

  int answer() noexcept {
    calls.fetch_add(1);
    return gone ? allocator::cuda::kDeinitialized : allocator::cuda::kSuccess;
  }
  void* take(std::size_t bytes) {
    void* const memory = std::aligned_alloc(256, (bytes + 255) / 256 * 256);
    std::memset(memory, 0xA5, bytes);
    const std::lock_guard<std::mutex> guard(mutex_);
    memory_.emplace_back(memory, &std::free);
    return memory;
  }
  void queue(std::uint64_t stream, std::function<void()> work) {
    const std::lock_guard<std::mutex> guard(mutex_);
    queue_locked(stream, std::move(work));
  }
  void queue_locked(std::uint64_t stream, std::function<void()> work) {
    queue_.push_back({stream, std::move(work)});
    if (holds) return;
    for (; !queue_.empty(); queue_.pop_front()) queue_.front().work();
  }
  void run_stream(std::uint64_t stream) {
    const std::lock_guard<std::mutex> guard(mutex_);
    for (auto at = queue_.begin(); at != queue_.end();) {
      if (at->stream != stream) {
        ++at;
        continue;
      }
      at->work();
      at = queue_.erase(at);
    }
  }

  // Verdicts are written last, and their outcomes last of all.
  template <class AnyBatch>
  std::function<void()> work_of(const compress::test::NamedKernel& kernel, const AnyBatch& batch,
                                Launch* noted) {
    noted->jobs = batch.jobs;
    const auto mine = std::make_shared<AnyBatch>(batch);
    const bool spoils = damages && kernel.verb == compress::test::Verb::kEncode;
    for (unsigned j = 0; j < batch.jobs; ++j) noted->verdicts.push_back(batch.job[j].verdict);
    return [kernel, mine, spoils] {
      namespace test = compress::test;
      std::vector<compress::cuda::Verdict> verdicts(mine->jobs);
      std::vector<compress::cuda::Verdict*> to(mine->jobs);
      for (unsigned j = 0; j < mine->jobs; ++j) {
        to[j] = std::exchange(mine->job[j].verdict, &verdicts[j]);
        EXPECT_TRUE(is_zero(*mine->job[j].counters)) << "counters before a launch";
      }
      if constexpr (std::is_same_v<AnyBatch, compress::cuda::Batch>) {
        EXPECT_TRUE(test::emulate_launch(kernel, *mine));
        if (spoils) static_cast<std::byte*>(mine->job[0].target)[100] ^= std::byte{4};
      } else {
        static_cast<void>(spoils);
        test::emulate_launch(kernel, *mine);
      }
      for (unsigned j = 0; j < mine->jobs; ++j) {
        EXPECT_TRUE(is_zero(*mine->job[j].counters)) << "counters after a launch";
        if (kernel.verb == test::Verb::kLookAtColumns) continue;
        constexpr std::size_t kOutcome = sizeof(compress::cuda::Outcome);
        static_assert(offsetof(compress::cuda::Verdict, outcome) == 0);
        std::memcpy(reinterpret_cast<std::byte*>(to[j]) + kOutcome,
                    reinterpret_cast<std::byte*>(&verdicts[j]) + kOutcome,
                    sizeof verdicts[j] - kOutcome);
        std::atomic_ref(*reinterpret_cast<std::uint32_t*>(to[j]))
            .store(static_cast<std::uint32_t>(verdicts[j].outcome), std::memory_order_release);
      }
    };
  }
  static bool is_zero(const compress::cuda::Counters& counters) {
    static constexpr compress::cuda::Counters kZero{};
    return std::memcmp(&counters, &kZero, sizeof kZero) == 0;
  }

  static inline HeldDevice* present_ = nullptr;
  std::mutex mutex_;
  std::deque<Queued> queue_;
  std::vector<std::unique_ptr<void, void (*)(void*)>> memory_;
};

}  // namespace pleat::bridge::cuda::testing
