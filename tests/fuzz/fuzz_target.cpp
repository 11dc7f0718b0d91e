// The libFuzzer entry for inputs of one shape.
#include "tests/fuzz/decode_fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  pleat::fuzz::decode_hostile(pleat::fuzz::Shape::PLEAT_FUZZ_SHAPE, data, size);
  return 0;
}
