// Seeded inputs of every kind and their expected payloads, as hashes in golden.txt. Integer and
// exact float arithmetic only, no library functions: any machine, any back end, the same inputs.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "compress/codec.h"

namespace pleat::compress::golden {

struct Case {
  std::string name;
  ElementType type;
  CodecSpec spec;
  std::size_t elements;
  std::vector<unsigned char> source;
};
inline constexpr std::uint64_t kNonce = 0x0123456789ABCDEF;

[[nodiscard]] std::vector<Case> cases();

// Float contents by number (bell, relu, cubed, offset, negative, mixture, extremes, special, wide).
[[nodiscard]] std::vector<unsigned char> floats(int kind, ElementType type, std::size_t elements,
                                                std::uint64_t seed);
[[nodiscard]] std::string hash_of(const std::vector<unsigned char>& bytes);  // 64-bit FNV-1a

// What encodes and decodes: a path of this library, or another implementation of the format.
struct Backend {
  std::function<std::vector<unsigned char>(const Case& input)> encode;  // empty: refused
  std::function<std::vector<unsigned char>(const std::vector<unsigned char>& payload,
                                           std::size_t bytes)>
      decode;
};
[[nodiscard]] Backend library_backend();

// How a CUDA device codes a case, and the payload as this library makes it.
enum class DeviceForm { kNone, kGrouped, kFramed, kBoolean, kSides };
struct DevicePayload {
  DeviceForm form;  // kNone: there is no kernel for it, its predictions would miss, or it stays raw
  std::vector<unsigned char> bytes;
};
[[nodiscard]] DevicePayload device_payload(const Case& input);

// "name payload-bytes payload-hash restored-hash device-hash", a line per case. Hashes are those of
// hash_of(); device-hash is that of device_payload(), or "-".
[[nodiscard]] std::vector<std::string> lines_of(const Backend& backend);
// Of the library: of all cases, and of the blocks (golden_blocks.h). What is committed.
[[nodiscard]] std::vector<std::string> library_lines();
[[nodiscard]] std::vector<std::string> read_lines(const std::string& file);

// What a device makes of the cases it has a form for, against committed lines. The first few that
// differ are printed; returns how many do.
struct Compared {
  unsigned cases;
  unsigned differ;
};
[[nodiscard]] Compared compare_device(const Backend& device,
                                      const std::vector<std::string>& committed);

}  // namespace pleat::compress::golden
