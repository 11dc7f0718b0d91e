// The identity of a saved tensor across steps. The key is made at the first save, from how the
// tensor was worked out, all the way from the leaves, and from its kind. Two tensors of one key
// have been worked out in the same way from the same weights, of other data. They are one unit and
// share one row of the profile.
#pragma once

#include <cstdint>

namespace pleat::sensitivity {

// Mixes a 64-bit value well (the finalizer of SplitMix64; Steele, Lea, Flood 2014).
[[nodiscard]] constexpr std::uint64_t mix(std::uint64_t x) noexcept {
  x += 0x9e3779b97f4a7c15ULL;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}

// FNV-1a over a string: the same in every process, unlike std::hash.
[[nodiscard]] constexpr std::uint64_t hash_text(const char* text) noexcept {
  std::uint64_t h = 0xcbf29ce484222325ULL;
  for (; *text != '\0'; ++text) {
    h = (h ^ static_cast<unsigned char>(*text)) * 0x100000001b3ULL;
  }
  return h;
}

struct KeyParts {
  std::uint64_t producer = 0;  // structure of the producer node; 0 where there is none
  std::uint32_t output_number = 0;
  std::uint32_t element_type = 0;
  std::uint32_t rank = 0;
  std::int64_t last_dimension = 0;
  bool is_output = false;  // saved by its own producer
};

[[nodiscard]] constexpr std::uint64_t tensor_key(const KeyParts& p) noexcept {
  std::uint64_t h = mix(p.producer);
  h = mix(h ^ (static_cast<std::uint64_t>(p.output_number) << 40 |
               static_cast<std::uint64_t>(p.element_type) << 16 |
               static_cast<std::uint64_t>(p.rank) << 1 | (p.is_output ? 1u : 0u)));
  return mix(h ^ static_cast<std::uint64_t>(p.last_dimension));
}

// A structure grows from input to input: that of a node begins with its class, and each input adds
// which of its outputs is read, and the structure of what makes it.
[[nodiscard]] constexpr std::uint64_t structure_with(std::uint64_t structure,
                                                     std::uint64_t of_input,
                                                     std::uint32_t output) noexcept {
  return mix(mix(structure ^ (static_cast<std::uint64_t>(output) + 1)) ^ of_input);
}
// Of a leaf of such a kind (type and shape), the number-th weight of that kind.
[[nodiscard]] constexpr std::uint64_t leaf_structure(std::uint64_t kind,
                                                     std::uint64_t number) noexcept {
  return mix(mix(kind) ^ number);
}

// The nonce of a payload: no other payload of the run has it, and a repeated run gives the same
// one.
//   save  how many tensors this process had tagged before; it alone keeps the nonces of a process
//         apart, since mix() is a bijection. The key is left out on purpose: it would add nothing,
//         and a collision of keys could make two nonces equal.
[[nodiscard]] constexpr std::uint64_t payload_nonce(std::uint64_t seed, std::uint64_t rank,
                                                    std::uint64_t save) noexcept {
  return mix(save ^ mix(seed ^ mix(rank)));
}

}  // namespace pleat::sensitivity
