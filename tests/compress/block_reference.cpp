#include "tests/compress/block_reference.h"

#include <cmath>
#include <cstdint>
#include <cstring>
#include <stdexcept>

#include "tests/compress/exponent_reference.h"
#include "tests/compress/support.h"

namespace pleat::compress::test {
namespace {

using Buffer = std::vector<unsigned char>;

void require(bool holds, const char* what) {
  if (!holds) throw std::runtime_error(what);
}

std::uint64_t number(const Buffer& from, std::size_t at, std::size_t bytes) {
  require(at + bytes <= from.size(), "number beyond the end");
  std::uint64_t value = 0;
  for (std::size_t i = 0; i < bytes; ++i) value |= std::uint64_t{from[at + i]} << (8 * i);
  return value;
}

Buffer part(const Buffer& from, std::size_t at, std::size_t bytes) {
  require(at + bytes <= from.size(), "part beyond the end");
  return {from.begin() + long(at), from.begin() + long(at + bytes)};
}

std::size_t up_to_64(std::size_t bytes) { return (bytes + 63) / 64 * 64; }

// ---- noise: Philox4x32-7 (Salmon et al. 2011), bytes as the section "Quantising" orders them ----

std::vector<unsigned> noise_of(std::uint64_t nonce, std::uint64_t group) {
  std::vector<unsigned> noise(256);
  for (std::uint32_t call = 0; call < 16; ++call) {
    std::uint64_t x[4] = {call, group & 0xFFFFFFFF, group >> 32, 0};
    std::uint32_t k[2] = {std::uint32_t(nonce), std::uint32_t(nonce >> 32)};
    for (int round = 0; round < 7; ++round) {
      const std::uint64_t a = x[0] * 0xD2511F53ull, b = x[2] * 0xCD9E8D57ull;
      const std::uint64_t next[4] = {(b >> 32) ^ x[1] ^ k[0], b & 0xFFFFFFFF,
                                     (a >> 32) ^ x[3] ^ k[1], a & 0xFFFFFFFF};
      std::copy(next, next + 4, x);
      k[0] += 0x9E3779B9;
      k[1] += 0xBB67AE85;
    }
    const std::uint64_t words[4] = {x[1], x[0], x[3], x[2]};
    for (unsigned byte = 0; byte < 16; ++byte) {
      const unsigned lane = call % 8, i = call / 8 * 2 + byte / 8, j = byte % 8;
      noise[i * 64 + lane * 8 + j] = words[byte / 4] >> (8 * (byte % 4)) & 0xFF;
    }
  }
  return noise;
}

// ---- groups ----

struct Payload {
  const Buffer& bytes;
  ElementType type;
  unsigned bits;
  std::uint64_t elements, nonce;
  bool zeros;  // groups of both signs keep them
  std::size_t size() const { return element_size(type); }
};

// Of a slot of so many eighths of its elements.
unsigned code_at(const Buffer& slot, unsigned bits, std::size_t e, std::size_t eighths = 32) {
  if (bits == 3)
    return (slot.at(e / 4) >> (2 * (e % 4)) & 3) | (slot.at(2 * eighths + e / 8) >> (e % 8) & 1)
                                                       << 2;
  if (bits == 6)
    return (slot.at(e / 2) >> (4 * (e % 2)) & 15) |
           (slot.at(4 * eighths + e / 4) >> (2 * (e % 4)) & 3) << 4;
  return slot.at(e * bits / 8) >> (e * bits % 8) & ((1u << bits) - 1);
}

// A zero-kept group's short slot: a bitmap, then the codes that are not 0.
std::vector<unsigned> squeezed_codes(const Buffer& rest, unsigned bits, std::size_t* took) {
  std::size_t kept = 0;
  for (std::size_t e = 0; e < 256; ++e) kept += rest.at(e / 8) >> (e % 8) & 1;
  const std::size_t eighths = (kept + 7) / 8;
  *took = 32 + bits * eighths;
  std::vector<unsigned> codes(256);
  std::size_t at = 0;
  for (std::size_t e = 0; e < 256; ++e) {
    if ((rest.at(e / 8) >> (e % 8) & 1) == 0) continue;
    const Buffer slot = part(rest, 32, bits * eighths);
    codes[e] = code_at(slot, bits, at++, eighths);
  }
  return codes;
}

float value_of_word(ElementType type, std::uint64_t word) {
  return static_cast<float>(value_at(type, &word, 0));
}

void store(ElementType type, float value, unsigned char* to) { set_value(type, to, 0, value); }

void restore_quantised(const Payload& from, std::size_t group, std::uint64_t w0, std::uint64_t w1,
                       const std::vector<unsigned>& codes, unsigned char* to, std::size_t count) {
  const bool half = from.size() == 2;
  const float limit = from.type == ElementType::kFloat16    ? 65504.0f
                      : from.type == ElementType::kBFloat16 ? 3.3895313892515355e38f
                                                            : 3.4028234663852886e38f;
  const std::uint32_t step_bits = std::uint32_t((w1 & ~std::uint64_t{1}) << (half ? 16 : 0));
  float step, anchor = value_of_word(from.type, w0);
  std::memcpy(&step, &step_bits, 4);
  const bool wide = w1 < (half ? 1u << 11 : 1u << 27);
  if (wide) {
    const int digits = from.type == ElementType::kFloat32   ? 19
                       : from.type == ElementType::kFloat16 ? 5
                                                            : 3;
    const int bias = from.type == ElementType::kFloat16 ? 33 : 127;
    const auto scale = static_cast<double>(std::uint64_t{1} << digits);
    const double mantissa = 1 + static_cast<double>(w1 % (1u << digits) / 2 * 2) / scale;
    step = static_cast<float>(std::ldexp(mantissa, static_cast<int>(w1 >> digits) - bias));
  }
  const bool mirrored = w1 % 2 == 1 && anchor <= 0;
  const bool zero_kept =
      (w1 % 2 == 1 && anchor > 0) || (from.zeros && !wide && !mirrored && anchor < 0);
  const float signed_step = mirrored ? -step : step;
  const float smallest =
      from.type == ElementType::kFloat16 ? std::ldexp(1.0f, -24) : std::ldexp(1.0f, -126);
  const float levels = static_cast<float>(1u << from.bits);
  const bool fits =
      std::fabs(anchor) + step <= limit && std::fabs(anchor + signed_step * levels) <= limit;
  const bool clear = (anchor < 0 && !mirrored) || std::fabs(anchor) > step / 2 + smallest;
  const std::vector<unsigned> noise = noise_of(from.nonce, group);
  for (std::size_t e = 0; e < count; ++e) {
    unsigned q = codes[e];
    float x = 0;
    if (wide && q + 3 >= 1u << from.bits) {
      const unsigned which = q + 3 - (1u << from.bits);
      set_value(from.type, to + e * from.size(), 0,
                which == 0   ? -INFINITY
                : which == 1 ? INFINITY
                             : double(NAN));
      continue;
    }
    if (!zero_kept || q != 0) {
      q -= zero_kept ? 1 : 0;
      if (fits && clear) {
        const float factor = static_cast<float>((256.0 * q + 127.5 - noise[e]) / 256);  // exact
        x = std::fma(signed_step, factor, anchor);
      } else {
        x = std::fma(signed_step, static_cast<float>(q), anchor);
        x = std::min(std::max(x, -limit), limit);
      }
    }
    store(from.type, x, to + e * from.size());
  }
}

// Elements near zero: after the escape table, at `at`.
void restore_near_zero(const Payload& from, std::size_t at, unsigned char* to) {
  const std::size_t size = from.size(), groups = (from.elements + 255) / 256;
  const std::size_t offsets = at + (2 * groups + 7) / 8 * 8;
  const std::size_t elements = offsets + 8 * ((groups + 63) / 64);
  std::size_t next = 0;
  for (std::size_t g = 0; g < groups; ++g) {
    if (g % 64 == 0) require(number(from.bytes, offsets + g / 64 * 8, 8) == next, "offset");
    const std::size_t count = number(from.bytes, at + 2 * g, 2);
    const std::size_t values = elements + next, positions = values + count * size;
    std::vector<std::size_t> places;
    if (count < 32) {
      for (std::size_t i = 0; i < count; ++i)
        places.push_back(number(from.bytes, positions + i, 1));
    } else {
      for (std::size_t e = 0; e < 256; ++e)
        if ((number(from.bytes, positions + e / 8, 1) >> (e % 8) & 1) != 0) places.push_back(e);
    }
    require(places.size() == count, "as many places as elements");
    for (std::size_t i = 0; i < count; ++i) {
      const Buffer value = part(from.bytes, values + i * size, size);
      std::copy(value.begin(), value.end(), to + (g * 256 + places[i]) * size);
    }
    next += count * size + std::min<std::size_t>(count, 32);
  }
  require(elements + next == from.bytes.size(), "a section with more than its elements");
}

// The exponents of the header, and the bytes of parts. `at`: where their section begins.
ReferenceExponents exponents_of(const Payload& from, std::size_t at,
                                std::vector<std::int8_t>* parts, std::size_t* section) {
  ReferenceExponents exponents{number(from.bytes, 40, 4), number(from.bytes, 44, 4), {}};
  require(exponents.row != 0 && exponents.inner != 0, "no row");
  const std::size_t count = part_ends(exponents.row, from.elements).size();
  const std::size_t channels = number(from.bytes, 56, 4);
  const std::size_t table = channels == 0 ? count : (count + 7) / 8 * 8;
  *section = up_to_64(table + channels);
  for (std::size_t i = 0; i < *section; ++i) {
    const auto byte = static_cast<std::int8_t>(number(from.bytes, at + i, 1));
    if (i < count)
      parts->push_back(byte);
    else if (i >= table && i < table + channels)
      exponents.table.push_back(byte);
    else
      require(byte == 0, "padding");
  }
  return exponents;
}

void restore_groups(const Payload& from, unsigned flags, std::size_t code_bytes,
                    unsigned char* to) {
  const std::size_t size = from.size(), groups = (from.elements + 255) / 256;
  const std::size_t metadata = 2 * size;
  const std::size_t codes = 64 + up_to_64(groups * metadata);
  const std::size_t slot = 32 * (from.bits == 0 ? 1 : from.bits);
  const std::size_t blocks = (groups + 63) / 64;
  const bool compacted_any = (flags & 1) != 0;
  std::size_t escapes = codes + code_bytes + (compacted_any ? 8 * blocks : 0), section = 0;
  ReferenceExponents exponents;
  std::vector<std::int8_t> parts;
  if ((flags & 64) != 0) exponents = exponents_of(from, escapes, &parts, &section);
  escapes += section;
  const std::uint64_t sign = std::uint64_t{1} << (8 * size - 1);
  for (std::size_t block = 0; block < blocks; ++block) {
    const std::size_t last = std::min(groups, (block + 1) * 64);
    std::size_t begin = block * 64 * slot, end = last * slot;
    if (compacted_any) {
      begin = number(from.bytes, codes + code_bytes + 8 * block, 8);
      end = block + 1 < blocks ? number(from.bytes, codes + code_bytes + 8 * (block + 1), 8)
                               : code_bytes;
    }
    const bool compacted = end - begin != (last - block * 64) * slot;
    std::size_t at = codes + begin;
    for (std::size_t g = block * 64; g < last; ++g) {
      const std::size_t count = std::min<std::size_t>(256, from.elements - g * 256);
      unsigned char* const out = to + g * 256 * size;
      const std::uint64_t w0 = number(from.bytes, 64 + g * metadata, size);
      const std::uint64_t w1 = number(from.bytes, 64 + g * metadata + size, size);
      if ((w1 & sign) != 0 && w0 == w1) {
        const std::uint64_t index = number(from.bytes, at, 8);
        const Buffer raw = part(from.bytes, escapes + index * 256 * size, count * size);
        std::copy(raw.begin(), raw.end(), out);
        at += slot;
      } else if ((w1 & sign) != 0) {
        const bool both = (w0 & sign) != 0 && w0 < w1;  // nonnegative
        const std::uint64_t values[2] = {both ? w0 - sign : w0, both ? w1 - sign : w1};
        const Buffer bits = part(from.bytes, at, 32);
        for (std::size_t e = 0; e < count; ++e)
          std::memcpy(out + e * size, &values[bits[e / 8] >> (e % 8) & 1], size);
        at += compacted ? 32 : slot;
      } else if ((w1 & ~std::uint64_t{1}) == 0) {
        for (std::size_t e = 0; e < count; ++e) std::memcpy(out + e * size, &w0, size);
        at += compacted ? 0 : slot;
      } else {
        const bool wide = w1 < (size == 2 ? 1u << 11 : 1u << 27);
        require(!wide || from.bits >= 3, "a wide group of too few bits");
        const bool zero_kept = !wide && w1 % 2 == 1 && value_of_word(from.type, w0) > 0;
        std::vector<unsigned> all(256);
        std::size_t took = slot;
        if (compacted && zero_kept) {
          const Buffer rest = part(from.bytes, at, from.bytes.size() - at);
          all = squeezed_codes(rest, from.bits, &took);
        } else {
          const Buffer regular = part(from.bytes, at, slot);
          for (std::size_t e = 0; e < 256; ++e) all[e] = code_at(regular, from.bits, e);
        }
        restore_quantised(from, g, w0, w1, all, out, count);
        at += took;
      }
    }
  }
  if ((flags & 64) != 0) lower_elements(from.type, parts, exponents, from.elements, to);
}

// ---- one span ----

Buffer restore_integers(const Payload& from) {
  const std::size_t size = from.size(), frames = (from.elements + 1023) / 1024;
  std::size_t at = 64 + up_to_64(frames * 2 * size);
  Buffer out(from.elements * size);
  for (std::size_t frame = 0; frame < frames; ++frame) {
    const std::uint64_t base = number(from.bytes, 64 + frame * 2 * size, size);
    const unsigned width = unsigned(number(from.bytes, 64 + frame * 2 * size + size, 1));
    const std::size_t count = std::min<std::size_t>(1024, from.elements - frame * 1024);
    for (std::size_t e = 0; e < count; ++e) {
      std::uint64_t difference = 0;
      for (unsigned bit = 0; bit < width; ++bit) {
        const std::size_t where = e * width + bit;
        difference |= std::uint64_t(from.bytes.at(at + where / 8) >> (where % 8) & 1) << bit;
      }
      const std::uint64_t x = base + difference;
      std::memcpy(&out[(frame * 1024 + e) * size], &x, size);
    }
    at += width * ((count + 7) / 8);
  }
  return out;
}

Buffer reference_span(const Buffer& payload) {
  require(number(payload, 0, 4) == 0x31544C50 && number(payload, 4, 2) == 4, "no payload");
  const Payload from{payload,
                     static_cast<ElementType>(payload[7]),
                     payload[8],
                     number(payload, 16, 8),
                     number(payload, 24, 8),
                     (payload[9] & 128) != 0};
  require(number(payload, 32, 8) == payload.size(), "not as long as it says");
  const unsigned kind = payload[6], flags = payload[9];
  Buffer out(from.elements * from.size());
  if (kind == 0) {
    out = part(payload, 64, out.size());
  } else if (kind == 1) {
    require((flags & 8) == 0, "transformed");
    const std::size_t code_bytes = number(payload, 48, 8), groups = (from.elements + 255) / 256;
    restore_groups(from, flags, code_bytes, out.data());
    if ((flags & 32) != 0)
      restore_near_zero(from,
                        64 + up_to_64(groups * 2 * from.size()) + code_bytes +
                            ((flags & 1) != 0 ? (groups + 63) / 64 * 8 : 0) +
                            number(payload, 12, 4) * 256 * from.size(),
                        out.data());
  } else if (kind == 2) {
    for (std::size_t e = 0; e < out.size(); ++e) out[e] = payload.at(64 + e / 8) >> (e % 8) & 1;
  } else if (kind == 3) {
    require(!is_floating(from.type), "framed floats");
    out = restore_integers(from);
  } else if (kind == 5) {
    const Buffer codes = part(payload, 64, payload.size() - 64);
    for (std::size_t e = 0; e < from.elements; ++e) {
      const unsigned side = code_at(codes, from.bits, e);
      require(side < 3, "a code that is no side");
      std::memcpy(&out[e * from.size()], &payload[side == 2 ? 56 : 40 + 4 * side], from.size());
    }
  } else {
    for (std::size_t e = 0; e < from.elements; ++e)
      std::memcpy(&out[e * from.size()], &payload[40], from.size());
  }
  return out;
}

// Moves what is not on the side that `sides`, a payload of kind 5, says to where its side begins.
void apply_sides(const Buffer& sides, Buffer& span) {
  require(number(sides, 32, 8) == sides.size() && sides[6] == 5, "no sides");
  const auto type = static_cast<ElementType>(sides[7]);
  const unsigned bits = sides[8];
  const std::size_t size = element_size(type);
  require(number(sides, 16, 8) * size == span.size(), "sides of another span");
  const double first = value_at(type, &sides[48], 0), last = value_at(type, &sides[52], 0);
  const Buffer codes = part(sides, 64, sides.size() - 64);
  // Neighbours by stepping through the words: up from zero towards both infinities.
  const auto beside = [&](std::size_t at, bool up) {
    std::uint64_t word = number(sides, at, size);
    const std::uint64_t sign = std::uint64_t{1} << (8 * size - 1);
    if ((word & ~sign) == 0) return up ? std::uint64_t{1} : sign + 1;
    return ((word & sign) == 0) == up ? word + 1 : word - 1;
  };
  for (std::size_t e = 0; e < span.size() / size; ++e) {
    const unsigned side = code_at(codes, bits, e);
    const double x = value_at(type, span.data(), e);
    std::uint64_t word = number(span, e * size, size);
    const bool inside = x >= first && x <= last;
    if (std::isnan(x)) continue;
    if (side == 1 && !inside) word = number(sides, x < first ? 48 : 52, size);
    if (bits == 2 && side == 0 && x >= first) word = beside(48, false);
    if (bits == 2 && side == 2 && x <= last) word = beside(52, true);
    if (bits == 1 && side == 0 && inside)  // there is one bound
      word = std::isinf(first) ? beside(52, true) : beside(48, false);
    std::memcpy(&span[e * size], &word, size);
  }
}

// ---- a block ----

void apply_lines(const Buffer& patch, Buffer& span) {
  const std::size_t runs = number(patch, 16, 8), length = number(patch, 24, 4);
  const bool columns = patch[28] == 3;
  const std::size_t item = patch[29], rows = span.size() / item / length;
  std::size_t at = 32 + 8 * runs;
  for (std::size_t run = 0; run < runs; ++run) {
    const std::size_t first = number(patch, 32 + 8 * run, 4);
    const std::uint64_t packed = number(patch, 36 + 8 * run, 4);
    const std::size_t count = packed & 0x7FFFFFFF;
    const bool zero = packed >> 31 != 0;
    // Row by row, whatever the lines are.
    for (std::size_t r = 0; r < rows; ++r) {
      for (std::size_t c = 0; c < length; ++c) {
        const std::size_t line = columns ? c : r;
        if (line < first || line >= first + count) continue;
        unsigned char* const to = &span[(r * length + c) * item];
        if (zero) {
          std::memset(to, 0, item);
        } else {
          const Buffer element = part(patch, at, item);
          std::copy(element.begin(), element.end(), to);
          at += item;
        }
      }
    }
  }
  require(at == patch.size(), "a patch with more than its lines");
}

Buffer reference_part(const Buffer& payload, std::size_t bytes, bool tiled) {
  if (std::memcmp(payload.data(), "PLPATCH1", 8) == 0) {
    const std::size_t patch = number(payload, 8, 8), codes = up_to_64(patch);
    Buffer span = reference_part(part(payload, codes, payload.size() - codes), bytes, tiled);
    apply_lines(part(payload, 0, patch), span);
    return span;
  }
  const std::size_t codes = number(payload, 32, 8);
  if (codes < payload.size()) {
    Buffer span = reference_part(part(payload, 0, codes), bytes, tiled);
    apply_sides(part(payload, up_to_64(codes), payload.size() - up_to_64(codes)), span);
    return span;
  }
  Buffer span = reference_span(payload);
  const std::size_t size = element_size(static_cast<ElementType>(payload[7]));
  if (tiled && payload[8] != 0 && payload[6] != 5 && bytes != 0 && bytes / size < 1024) {
    require(span.size() == 2048 * size, "no tile");
    span.resize(bytes);
  }
  require(span.size() == bytes, "a span of another size");
  return span;
}

}  // namespace

std::vector<unsigned char> reference_block(const std::vector<unsigned char>& payload,
                                           std::size_t bytes, bool tiled) {
  if (std::memcmp(payload.data(), "PLSPANS1", 8) != 0) return reference_part(payload, bytes, tiled);
  Buffer block(bytes);
  for (std::size_t i = 0; i < number(payload, 8, 8); ++i) {
    const std::size_t entry = 16 + 32 * i;
    const std::size_t begin = number(payload, entry, 8), end = number(payload, entry + 8, 8);
    const Buffer span = reference_part(
        part(payload, number(payload, entry + 16, 8), number(payload, entry + 24, 8)), end - begin,
        tiled);
    require(end <= bytes, "a span beyond the block");
    std::copy(span.begin(), span.end(), block.begin() + long(begin));
  }
  return block;
}

}  // namespace pleat::compress::test
