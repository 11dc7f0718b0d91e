// The table of one instruction set, and the choice between plain and rotated groups. Lists
// functions that the including file defines, so it is included after them. Anonymous: see
// kernels.h.
#pragma once

#include "compress/exponents/lowerer.h"
#include "compress/exponents/raiser.h"
#include "compress/functions/function_kernels.h"
#include "compress/grouped/compacted_blocks.h"
#include "compress/kernels.h"
#include "compress/rotated/transform_kernels.h"

namespace pleat::compress {
namespace {

template <class T>
void encode_groups(const EncodeGroups& job) {
  const uint32_t escaped = job.result->escaped_groups;
  if (job.transformed)
    encode_transformed<T, Planes, Conversions>(job, encode_plain_groups<Float32>);
  else
    encode_plain_groups<T>(job);
  if (job.exponents.any() && job.result->escaped_groups != escaped) clear_escaped_parts<T>(job);
}
template <class T>
bool decode_groups(const DecodeGroups& job) {
  DecodeGroups one = job;
  if (job.exponents.any() && !has_lowered(job)) one.exponents = {};
  one.stream = job.stream && !one.exponents.any();  // results are read again
  if (one.transformed)
    return decode_transformed<T, Planes, Conversions>(one, decode_plain_groups<Float32>);
  return decode_plain_groups<T>(one);
}
template <class T>
size_t count_escapes(const EncodeGroups& job) {
  if (!job.transformed && !job.exponents.any()) return count_plain_escapes<T>(job);
  return count_by_encoding<T>(job, encode_groups<T>);
}

constexpr Kernels kTable = {
    {encode_groups<Float32>, encode_groups<BFloat16>, encode_groups<Float16>},
    {decode_groups<Float32>, decode_groups<BFloat16>, decode_groups<Float16>},
    {compact_block<Float32, Planes>, compact_block<BFloat16, Planes>,
     compact_block<Float16, Planes>},
    {count_escapes<Float32>, count_escapes<BFloat16>, count_escapes<Float16>},
    are_booleans,
    pack_booleans,
    unpack_booleans,
    {measure_floats<uint32_t>, measure_floats<uint16_t>, measure_floats<uint16_t>, nullptr,
     measure_integers<int64_t, uint64_t>, measure_integers<int32_t, uint32_t>},
    {pack_float_frames<Planes, uint32_t>, pack_float_frames<Planes, uint16_t>,
     pack_float_frames<Planes, uint16_t>, nullptr, pack_integer_frames<int64_t, uint64_t>,
     pack_integer_frames<int32_t, uint32_t>},
    {unpack_float_frames<Planes, uint32_t>, unpack_float_frames<Planes, uint16_t>,
     unpack_float_frames<Planes, uint16_t>, nullptr, unpack_integer_frames<int64_t, uint64_t>,
     unpack_integer_frames<int32_t, uint32_t>},
    {apply_function<Float32>, apply_function<BFloat16>, apply_function<Float16>},
    {pack_sides<Float32>, pack_sides<BFloat16>, pack_sides<Float16>},
    {unpack_sides<Float32>, unpack_sides<BFloat16>, unpack_sides<Float16>},
    {move_to_sides<Float32>, move_to_sides<BFloat16>, move_to_sides<Float16>},
};

}  // namespace
}  // namespace pleat::compress
