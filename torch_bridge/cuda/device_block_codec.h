// Codes the blocks of one CUDA device there. Work is queued on the stream that the caller names,
// and the host looks at no value: how a block is coded follows from what is asked, and from what
// the last payloads of its key have taught (key_lessons.h).
//
// A payload that cannot be refused is done in stream order at once. These are: sides, lossy floats
// of 3 bits and more, and other payloads whose key was once as predicted. Any other is queued: 1
// and 2 bits, exact floats, integers, values among which flat lines are looked for, and the
// first payload of a key whose steps or elements near zero are to be looked at, or the next 64
// after a surprise.
//
// How a block is coded does not depend on when verdicts come. A key's earlier verdicts are all
// there before its next block is planned: nearly always, as a step lies between; else the device is
// waited for. A reader of a block whose lossy encode is queued waits for the verdict. Torch-free.
//
// Threads: any. Driver calls: launches, memsets for gaps and for exact floats, and copies of tables
// and of samples (device_scales.h). Waiting for the device: verdict() with `wait`, plan() where a
// verdict or a sample of the key has not come, encode() where too many samples are under way, and
// decode() on a stream that is one of more than 511.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "allocator/cuda/device_words.h"
#include "allocator/cuda/driver.h"
#include "allocator/store/block_codec.h"
#include "compress/block/block_spec.h"
#include "compress/kernel_launcher.h"
#include "torch_bridge/core/device_facts.h"
#include "torch_bridge/cuda/device_codec.h"
#include "torch_bridge/cuda/device_form.h"
#include "torch_bridge/cuda/device_scales.h"
#include "torch_bridge/cuda/device_tasks.h"
#include "torch_bridge/cuda/expected_payload.h"
#include "torch_bridge/cuda/key_lessons.h"

namespace pleat::bridge::cuda {

class DeviceBlockCodec final : public DeviceCodec {
 public:
  // All outlive this. Makes no CUDA call.
  DeviceBlockCodec(compress::KernelLauncher& launcher, const allocator::cuda::Driver& driver,
                   allocator::cuda::DriverLife& life, int device) noexcept;
  ~DeviceBlockCodec() override;
  DeviceBlockCodec(const DeviceBlockCodec&) = delete;
  DeviceBlockCodec& operator=(const DeviceBlockCodec&) = delete;

  [[nodiscard]] Opened open(allocator::StreamId stream, std::string& why) noexcept override;
  allocator::EncodePlan plan(const allocator::EncodeRequest& request) noexcept override;
  allocator::EncodeResult encode(const allocator::EncodeRequest& request,
                                 const allocator::EncodePlan& plan, void* payload,
                                 std::size_t capacity) noexcept override;
  bool is_decided(allocator::EncodeTicket ticket) noexcept override;
  allocator::EncodeResult verdict(allocator::EncodeTicket ticket, bool wait) noexcept override;
  void forget(allocator::EncodeTicket ticket) noexcept override;
  // Noise by the kernels that code, so it is what they could have made: device_restoring.cpp. No
  // function: no record is recomputed on a device.
  allocator::CodecStatus decode(const allocator::DecodeRequest& request) noexcept override;
  std::size_t decode_scratch(const allocator::DecodeRequest& request) noexcept override;

  [[nodiscard]] std::vector<CodedSpan> coded_spans(
      const allocator::PayloadView& payload) const override;
  [[nodiscard]] bool sketch(std::span<const compress::cuda::SketchTask> tasks,
                            allocator::StreamId stream) noexcept override;
  [[nodiscard]] const DeviceCounts& counts() const noexcept override { return counts_; }

  void lock_for_fork() noexcept override;
  void unlock_after_fork() noexcept override;

 private:
  struct RestoringTurn;

  [[nodiscard]] allocator::CodecStatus decode_payload(
      const allocator::DecodeRequest& request) noexcept;
  [[nodiscard]] allocator::CodecStatus add_noise(const allocator::DecodeRequest& request) noexcept;
  [[nodiscard]] RestoringTurn take_turn(allocator::StreamId stream) noexcept;
  [[nodiscard]] allocator::CodecStatus end_turn(const RestoringTurn& turn,
                                                allocator::StreamId stream, bool launched) noexcept;
  [[nodiscard]] static bool restoring_tasks(const allocator::PayloadView& payload, void* target,
                                            const RestoringTurn& turn, DeviceTasks& tasks) noexcept;
  void count_hold(DeviceHold why, std::size_t bytes) noexcept;
  void count(const ExpectedPayload& expected, std::size_t payload_bytes) noexcept;
  bool judge(ExpectedPayload& expected) noexcept;
  std::optional<allocator::StreamId> judge_all_of(allocator::TensorKey key) noexcept;
  void settle(allocator::TensorKey key) noexcept;
  void await_scales(allocator::TensorKey key) noexcept;
  void take_sample(const allocator::EncodeRequest& request) noexcept;
  template <class Decided>
  [[nodiscard]] bool await(allocator::StreamId stream, Decided&& decided) noexcept;
  void give_slots(const ExpectedPayload& expected) noexcept;
  void take_late_verdicts() noexcept;

  compress::KernelLauncher& launcher_;
  const allocator::cuda::Driver& driver_;
  allocator::cuda::DriverLife& life_;
  const int device_;
  bool usable_ = false;
  allocator::cuda::DeviceWords words_;
  KeyLessons lessons_;
  DeviceScales scales_{driver_, life_, words_};
  // Around the launches of a stream that has no workspace of its own, and before all other locks.
  std::mutex last_workspace_mutex_;
  std::mutex mutex_;  // before those of lessons and words
  std::uint64_t last_ticket_ = 0;
  std::unordered_map<std::uint64_t, std::unique_ptr<ExpectedPayload>> asked_;  // by ticket
  std::deque<std::unique_ptr<ExpectedPayload>> unasked_;  // their verdicts only teach
  DeviceCounts counts_;
};

}  // namespace pleat::bridge::cuda
