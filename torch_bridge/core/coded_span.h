// Where the codes of a span stand in a payload that lies on a device. Torch-free.
#pragma once

#include <cstddef>

#include "compress/block/block_payload.h"

namespace pleat::bridge {

struct CodedSpan {
  std::size_t offset = 0, bytes = 0;  // within the payload
  std::size_t span_bytes = 0;
  compress::block::BlockForm form;  // as if they were the payload of a block, which the host reads
  std::size_t beside_bytes = 0;     // what stands beside them: sides, lines, elements near zero
};

}  // namespace pleat::bridge
