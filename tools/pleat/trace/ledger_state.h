// What a ledger knows of a device. For ledger.cpp and ledger_live.cpp.
#pragma once

#include <map>

#include "ledger.h"

namespace pleat::trace {

struct Ledger::LiveBlock : LifeBlock {
  std::uint64_t address = 0;
  std::uint64_t born_ns = 0;
  std::uint32_t step = kNoStep;
  ByteClass of = ByteClass::kUnknown;  // of its life
  Origin born, forward;
  std::uint32_t module = 0;

  [[nodiscard]] ByteClass now() const noexcept { return LifeBlock::now(of); }
};

struct Ledger::Device : LifeDevice<LiveBlock, LiveRecord, LiveTable, true> {
  const DeviceLives* lives = nullptr;
  std::map<std::uint64_t, std::uint64_t> segments;  // begin, end; never adjacent
  Beginning beginning;
  std::size_t next_number = 0;  // of blocks
  bool disagrees = false;
};

}  // namespace pleat::trace
