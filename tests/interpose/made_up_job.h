// A training that is made up: the events that its memory would cause, changes included. One seed
// makes the same events each time. It has blocks, payloads and records of every kind.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <random>
#include <utility>
#include <vector>

#include "torch_bridge/c_abi.h"

namespace pleat::recorder_testing {

class MadeUpJob {
 public:
  // `tell` gets each event without a time and a thread.
  using Tell = std::function<void(const PleatTraceEvent&)>;
  MadeUpJob(unsigned seed, Tell tell, int device = -1)
      : random_(seed), tell_(std::move(tell)), device_(static_cast<std::int8_t>(device)) {}

  // Parameters, and data before the first step.
  void begin() {
    segment();
    phase_ = PLEAT_TRACE_PHASE_OTHER;
    for (int i = 0; i < 5; ++i) label(allocate(size()), PLEAT_TRACE_LABEL_PARAMETER);
  }
  void step() {
    phase(PLEAT_TRACE_PHASE_DATA);
    const std::uint64_t input = allocate(size());
    phase(PLEAT_TRACE_PHASE_FORWARD);
    std::vector<Saved> saved;
    for (int i = 0; i < 12; ++i) saved.push_back(save());
    if (step_ % 2 == 0) allocate(size());  // leaks
    phase(PLEAT_TRACE_PHASE_BACKWARD);
    for (; !saved.empty(); saved.pop_back()) use(saved.back());
    phase(PLEAT_TRACE_PHASE_OPTIMIZER);
    if (step_ < 3) allocate(size());  // the optimizer's state
    free(allocate(size()));
    free(input);
    ++step_;
  }

  void phase(PleatTracePhase begins) {
    phase_ = begins;
    PleatTraceEvent mark = event(PLEAT_TRACE_PHASE);
    mark.bytes = step_;
    tell_(mark);
  }
  std::uint64_t allocate(std::int64_t bytes, std::uint64_t node = 0, std::uint64_t owner = 0) {
    PleatTraceEvent born = event(PLEAT_TRACE_ALLOCATE);
    born.record = owner;
    born.block = ++ids_;
    born.node = node;
    born.bytes = static_cast<std::uint64_t>(bytes);
    born.address = addresses_;
    born.op = place().first;
    born.stack = place().second;
    addresses_ += rounded(bytes);
    sizes_[born.block] = bytes;
    born.change[PLEAT_TRACE_REQUESTED] = bytes;
    born.change[PLEAT_TRACE_ACTIVE] = rounded(bytes);
    tell_(born);
    return born.block;
  }
  void free(std::uint64_t block) {
    PleatTraceEvent gone = event(PLEAT_TRACE_FREE);
    const std::int64_t bytes = sizes_.at(block);
    gone.block = block;
    gone.bytes = static_cast<std::uint64_t>(bytes);
    gone.change[PLEAT_TRACE_REQUESTED] = -bytes;
    gone.change[PLEAT_TRACE_ACTIVE] = -rounded(bytes);
    sizes_.erase(block);
    tell_(gone);
  }

 private:
  enum class How { kRaw, kChunk, kOwnBlock, kInPlace, kRecomputed };
  struct Saved {
    std::uint64_t record, block, own, node, address;
    std::int64_t bytes, payload;
    How how;
  };

  [[nodiscard]] static std::int64_t rounded(std::int64_t bytes) {
    return (bytes + 65535) / 65536 * 65536;
  }
  std::int64_t size() { return 65536 + static_cast<std::int64_t>(random_() % 1'000'000); }
  // The operator and the stack of the next block.
  std::pair<std::uint32_t, std::uint32_t> place() const { return {1 + ids_ % 3, 1 + ids_ % 40}; }
  PleatTraceEvent event(PleatTraceKind kind) {
    PleatTraceEvent made{};
    made.kind = static_cast<std::uint8_t>(kind);
    made.phase = phase_;
    made.device = kind >= PLEAT_TRACE_PHASE && kind != PLEAT_TRACE_LABEL ? -1 : device_;
    return made;
  }
  void segment() {
    PleatTraceEvent made = event(PLEAT_TRACE_SEGMENT_RESERVE);
    made.address = addresses_;
    made.bytes = std::uint64_t{1} << 40;
    made.change[PLEAT_TRACE_RESERVED] = std::int64_t{1} << 40;
    tell_(made);
  }
  void label(std::uint64_t block, PleatTraceLabel what) {
    PleatTraceEvent mark = event(PLEAT_TRACE_LABEL);
    mark.block = block;
    mark.reason = static_cast<std::uint8_t>(what);
    mark.bytes = static_cast<std::uint64_t>(sizes_.at(block));
    tell_(mark);
  }
  void shrink(std::uint64_t block, std::int64_t bytes) {
    PleatTraceEvent made = event(PLEAT_TRACE_SHRINK);
    std::int64_t& size = sizes_.at(block);
    made.block = block;
    made.bytes = static_cast<std::uint64_t>(bytes);
    made.change[PLEAT_TRACE_REQUESTED] = bytes - size;
    made.change[PLEAT_TRACE_ACTIVE] = rounded(bytes) - rounded(size);
    size = bytes;
    tell_(made);
  }
  void slot(PleatTraceKind kind, Saved& saved, std::int64_t from, std::int64_t to) {
    if (chunk_ == 0) {
      PleatTraceEvent chunk = event(PLEAT_TRACE_CHUNK_ALLOCATE);
      chunk_ = chunk.block = ++ids_;
      chunk.address = addresses_;
      chunk.bytes = 64u << 20;
      chunk.change[PLEAT_TRACE_ACTIVE] = 64 << 20;
      addresses_ += chunk.bytes;
      tell_(chunk);
    }
    PleatTraceEvent made = event(kind);
    if (kind == PLEAT_TRACE_PAYLOAD_ALLOCATE) {
      saved.address = slots_ += 1'000'000;
      made.record = saved.record;
    }
    made.block = chunk_;
    made.address = saved.address;
    made.bytes = static_cast<std::uint64_t>(kind == PLEAT_TRACE_PAYLOAD_FREE ? from : to);
    made.change[PLEAT_TRACE_REQUESTED] = to - from;
    tell_(made);
  }
  PleatTraceEvent of_record(PleatTraceKind kind, const Saved& saved, std::uint64_t block,
                            std::int64_t bytes) {
    PleatTraceEvent made = event(kind);
    made.record = saved.record;
    made.block = block;
    made.bytes = static_cast<std::uint64_t>(bytes);
    return made;
  }
  void decide(const Saved& saved) {
    PleatTraceEvent mark = event(PLEAT_TRACE_DECIDED);
    mark.device = device_;
    mark.record = saved.record;
    mark.bytes = static_cast<std::uint64_t>(saved.bytes);
    mark.op = 1;
    mark.reason = 4;
    mark.key = mark.bytes / 4;
    tell_(mark);
    if (saved.how != How::kRaw) return;
    mark.kind = PLEAT_TRACE_PLAN;
    mark.op = 0;
    mark.reason = PLEAT_TRACE_PLAN_CODED;
    mark.key = mark.bytes / 8;
    tell_(mark);
  }

  Saved save() {
    Saved saved{};
    saved.how = static_cast<How>(random_() % 5);
    saved.bytes = size();
    saved.payload = saved.bytes / 8;
    saved.record = ++records_;
    saved.block = allocate(saved.bytes);
    saved.node = std::uint64_t{1} << 48 | records_;
    PleatTraceEvent node = event(PLEAT_TRACE_NODE);
    node.node = saved.node;
    node.op = 2;
    node.stack = 50 + records_ % 9;
    tell_(node);
    PleatTraceEvent tag = of_record(PLEAT_TRACE_TAG, saved, saved.block, saved.bytes);
    tag.op = 2;
    tag.stack = 60 + records_ % 9;
    tag.key = records_ % 12;
    tag.node = saved.node;
    tag.change[PLEAT_TRACE_SAVED_RAW] = saved.bytes;
    tell_(tag);
    decide(saved);
    free(allocate(size()));
    tell_(of_record(PLEAT_TRACE_RELEASE, saved, saved.block, saved.bytes));
    if (saved.how == How::kRaw) {
      tell_(of_record(PLEAT_TRACE_HOLD, saved, saved.block, saved.bytes));
    } else {
      encode(saved);
    }
    return saved;
  }
  void encode(Saved& saved) {
    const std::int64_t room = saved.payload + 5000;
    const auto until_the_verdict = [&] { free(allocate(saved.payload)); };
    if (saved.how == How::kChunk) {
      slot(PLEAT_TRACE_PAYLOAD_ALLOCATE, saved, 0, room);
      until_the_verdict();
      slot(PLEAT_TRACE_PAYLOAD_SHRINK, saved, room, saved.payload);
    } else if (saved.how == How::kOwnBlock) {
      saved.own = allocate(room, 0, saved.record);
      until_the_verdict();
      shrink(saved.own, saved.payload);
    } else if (saved.how == How::kInPlace) {
      shrink(saved.block, saved.payload);
    } else {
      saved.payload = 0;
    }
    until_the_verdict();
    PleatTraceEvent done = of_record(PLEAT_TRACE_ENCODE, saved, 0, saved.payload);
    switch (saved.how) {
      case How::kChunk:
        done.reason = PLEAT_TRACE_PLACE_CHUNK;
        done.block = chunk_;
        done.address = saved.address;
        break;
      case How::kOwnBlock:
        done.reason = PLEAT_TRACE_PLACE_OWN_BLOCK;
        done.block = saved.own;
        break;
      case How::kInPlace:
        done.reason = PLEAT_TRACE_PLACE_IN_PLACE;
        done.block = saved.block;
        break;
      default:
        break;
    }
    done.change[PLEAT_TRACE_SAVED_RAW] = -saved.bytes;
    done.change[PLEAT_TRACE_PAYLOAD] = saved.payload;
    tell_(done);
    if (saved.how != How::kInPlace) free(saved.block);
  }
  // Restored, a gradient is made, and all of it goes.
  void use(Saved& saved) {
    const bool raw = saved.how == How::kRaw;
    const std::uint64_t target = raw ? saved.block : allocate(saved.bytes, saved.node);
    PleatTraceEvent back = of_record(PLEAT_TRACE_RESTORE, saved, target, saved.bytes);
    back.change[PLEAT_TRACE_RESTORED] = saved.bytes;
    back.change[PLEAT_TRACE_SAVED_RAW] = raw ? -saved.bytes : 0;
    tell_(back);
    const std::uint64_t gradient = allocate(size(), saved.node);
    back = of_record(PLEAT_TRACE_RESTORED_FREE, saved, target, saved.bytes);
    back.change[PLEAT_TRACE_RESTORED] = -saved.bytes;
    back.change[PLEAT_TRACE_SAVED_RAW] = raw ? saved.bytes : 0;
    tell_(back);
    if (!raw) free(target);
    if (saved.how == How::kChunk) slot(PLEAT_TRACE_PAYLOAD_FREE, saved, saved.payload, 0);
    if (saved.how == How::kOwnBlock) free(saved.own);
    if (saved.how == How::kInPlace || raw) free(saved.block);
    PleatTraceEvent drop = of_record(PLEAT_TRACE_DROP, saved, 0, raw ? 0 : saved.payload);
    drop.change[PLEAT_TRACE_SAVED_RAW] = raw ? -saved.bytes : 0;
    drop.change[PLEAT_TRACE_PAYLOAD] = raw ? 0 : -saved.payload;
    tell_(drop);
    free(gradient);
  }

  std::mt19937 random_;
  Tell tell_;
  std::int8_t device_;
  std::uint8_t phase_ = 0;
  std::uint64_t ids_ = 0, records_ = 0, step_ = 0, chunk_ = 0, slots_ = 0;
  std::uint64_t addresses_ = std::uint64_t{0x7f} << 40;
  std::map<std::uint64_t, std::int64_t> sizes_;
};

}  // namespace pleat::recorder_testing
