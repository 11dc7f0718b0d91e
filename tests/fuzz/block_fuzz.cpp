// Whole blocks given hostile bytes and hostile forms: decode_block(), the functions, and the
// comparison of results. The libFuzzer entry; the sanitizers judge.
#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "compress/block/block_layout.h"
#include "compress/block/block_payload.h"
#include "compress/codec.h"
#include "compress/format.h"
#include "tests/fuzz/decode_fuzz.h"

namespace pleat::fuzz {
namespace {

using namespace compress;
using namespace compress::block;

constexpr std::size_t kMostTarget = std::size_t{1} << 20;

struct Block {
  BlockForm form;
  std::vector<std::uint8_t> payload;
  std::size_t target_bytes = 0;
};

template <class T>
void append(std::vector<std::uint8_t>& bytes, const T& value) {
  bytes.resize(bytes.size() + sizeof value);
  std::memcpy(bytes.data() + bytes.size() - sizeof value, &value, sizeof value);
}

// What the input chooses for all spans.
struct Choice {
  bool table, patch, tiles, sides;
  Shape shape;
  std::size_t spans;
  std::uint8_t type_and_bits, nonce, flags;

  explicit Choice(Input& input) {
    const auto chosen = static_cast<unsigned>(input.take(1));
    table = (chosen & 1) != 0;
    patch = (chosen & 2) != 0;
    tiles = (chosen & 4) != 0;
    const Shape shapes[] = {Shape::payload, Shape::grouped, Shape::framed, Shape::packed};
    shape = shapes[chosen >> 3 & 3];
    spans = table ? chosen >> 5 & 3 : 1;
    sides = (chosen & 0x80) != 0;
    type_and_bits = static_cast<std::uint8_t>(input.take(1));
    nonce = static_cast<std::uint8_t>(input.take(1));
    flags = static_cast<std::uint8_t>(input.take(1));
  }
};

// A patch of a span of `rows` rows, its sizes consistent with it unless its runs are not.
std::vector<std::uint8_t> patch_of(Input& input, std::size_t length, std::size_t rows,
                                   std::size_t item) {
  const auto look = static_cast<unsigned>(1 + input.take(1) % 3);
  const std::size_t runs = input.take(1) % 4;
  std::vector<std::uint8_t> lines;
  std::size_t kept = 0;
  for (std::size_t run = 0; run < runs; ++run) {
    const auto first = static_cast<std::uint32_t>(input.take(1));
    const auto counted = static_cast<std::uint32_t>(input.take(1));
    append(lines, first);
    append(lines, (counted & 0x7F) | (counted & 0x80) << 24);
    kept += (counted & 0x80) != 0 ? 0 : counted & 0x7F;
  }
  const std::size_t exact = kept * (look == 3 ? rows : length) * item;
  std::vector<std::uint8_t> patch{'P', 'L', 'P', 'A', 'T', 'C', 'H', '1'};
  append(patch, std::uint64_t{32 + lines.size() + exact});
  append(patch, std::uint64_t{runs});
  append(patch, static_cast<std::uint32_t>(length));
  append(patch, static_cast<std::uint8_t>(look));
  append(patch, static_cast<std::uint8_t>(item));
  append(patch, std::uint16_t{0});
  patch.insert(patch.end(), lines.begin(), lines.end());
  patch.resize(patch.size() + exact, 0x41);
  return patch;
}

// Sides of a span's values, consistent with it but for their codes.
std::vector<std::uint8_t> sides_of(Input input, const Header& codes, std::size_t elements) {
  Header header;
  header.kind = static_cast<std::uint8_t>(PayloadKind::kSides);
  header.type = codes.type;
  header.bits = static_cast<std::uint8_t>(1 + input.take(1) % 2);
  header.elements = elements;
  header.nonce = codes.nonce;
  header.code_bytes = input.take(2) | input.take(2) << 32;
  const auto type = static_cast<ElementType>(header.type);
  if (element_size(type) == 4) header.code_bytes <<= 16;
  if (header.bits == 1) {  // one bound, a low one
    const std::uint64_t infinity = type == ElementType::kFloat32    ? 0x7F80'0000u
                                   : type == ElementType::kBFloat16 ? 0x7F80u
                                                                    : 0x7C00u;
    header.code_bytes = (header.code_bytes & 0xFFFF'FFFFu) | infinity << 32;
  }
  header.payload_bytes = kHeaderBytes + ceil_divide(elements * header.bits, 8);
  std::vector<std::uint8_t> payload(header.payload_bytes);
  std::memcpy(payload.data(), &header, sizeof header);
  for (std::size_t i = kHeaderBytes; i < payload.size() && input.size != 0; ++i)
    payload[i] = input.data[i % input.size];
  return payload;
}

// A block whose table, patch and headers are consistent as far as they go, so that every decoder is
// reached; its spans' codes are what is left of the input.
Block put_together(Input& input) {
  const Choice choice(input);
  Block block;
  block.form.shape = choice.table ? BlockShape::kTable : BlockShape::kSingle;
  block.form.spans = static_cast<std::uint32_t>(choice.spans);
  block.form.tiles = choice.tiles ? 1 : 0;
  if (choice.table) {
    append(block.payload, TableHeader{kTableMagic, choice.spans});
    block.payload.resize(table_bytes(choice.spans));
  }
  for (std::size_t i = 0; i < choice.spans; ++i) {
    const std::size_t length = 2 + input.take(1) % 40, rows = 1 + input.take(1);
    const std::size_t elements = length * rows;
    const auto coded = static_cast<std::uint16_t>(
        choice.tiles && elements < kTiledBelow ? kTiledElements : elements);
    std::vector<std::uint8_t> own;
    append(own, coded);
    append(own, choice.type_and_bits);
    append(own, choice.nonce);
    if (choice.shape == Shape::grouped) append(own, choice.flags);
    const std::size_t share = input.size / (choice.spans - i);
    own.insert(own.end(), input.data, input.data + share);
    input = {input.data + share, input.size - share};
    std::vector<std::uint8_t> codes = payload_of(choice.shape, {own.data(), own.size()});
    Header header;
    std::memcpy(&header, codes.data(), std::min(codes.size(), sizeof header));
    header.nonce += i;
    if (choice.shape == Shape::framed || choice.shape == Shape::packed) {
      if (header.kind != static_cast<std::uint8_t>(PayloadKind::kSides))
        header.bits = static_cast<std::uint8_t>(supported_bits(choice.flags % 9));
    } else if (choice.shape == Shape::grouped && (choice.flags & 0x80) != 0) {
      codes.resize(kHeaderBytes + (codes.size() - kHeaderBytes) * choice.nonce / 256);
      header.payload_bytes = codes.size();
    }
    std::memcpy(codes.data(), &header, std::min(codes.size(), sizeof header));

    const std::size_t item = element_size(static_cast<ElementType>(header.type));
    const std::size_t begin = block.payload.size();
    if (choice.patch) {
      Input lines = {own.data(), own.size()};
      const std::vector<std::uint8_t> patch = patch_of(lines, length, rows, item);
      block.form.patch_bytes = patch.size();
      block.payload.insert(block.payload.end(), patch.begin(), patch.end());
      block.payload.resize(align_up(block.payload.size()));
    }
    block.payload.insert(block.payload.end(), codes.begin(), codes.end());
    if (choice.sides) {
      const std::vector<std::uint8_t> sides = sides_of({own.data(), own.size()}, header, elements);
      block.form.side_part = 1;
      block.payload.resize(align_up(block.payload.size()));
      block.payload.insert(block.payload.end(), sides.begin(), sides.end());
    }
    if (choice.table) {
      const std::size_t from = block.target_bytes + choice.flags % 32 * item;
      const TableEntry entry{from, from + elements * item, begin, block.payload.size() - begin};
      std::memcpy(&block.payload[sizeof(TableHeader) + i * sizeof entry], &entry, sizeof entry);
      block.target_bytes = from;
      if (i + 1 < choice.spans) block.payload.resize(align_up(block.payload.size()));
    }
    block.target_bytes += elements * item;
    block.form.elements += elements;
    if (i != 0) continue;
    block.form.type = static_cast<ElementType>(header.type);
    block.form.bits = header.bits;
    block.form.only_sides = header.kind == static_cast<std::uint8_t>(PayloadKind::kSides) ? 1 : 0;
    block.form.nonce = header.nonce;
    block.form.transform = (header.flags & kFlagScaled) != 0        ? Transform::kHadamardScaled
                           : (header.flags & kFlagTransformed) != 0 ? Transform::kHadamard
                                                                    : Transform::kNone;
  }
  return block;
}

// One lie, or none: in the form, in the payload, or in the target's size.
void lie(Input& input, Block& block) {
  const auto what = static_cast<unsigned>(input.take(1));
  const std::uint64_t value = input.take(4);
  switch (what % 16) {
    case 12:
      block.form.only_sides ^= 1;
      break;
    case 13:
      block.form.side_part ^= 1;
      break;
    case 1:
      block.form.shape = static_cast<BlockShape>(value);
      break;
    case 2:
      block.form.type = static_cast<ElementType>(value);
      break;
    case 3:
      block.form.bits = static_cast<std::uint8_t>(value);
      break;
    case 4:
      block.form.transform = static_cast<Transform>(value);
      break;
    case 5:
      block.form.spans = value & 0x1FFF'FFFF;
      break;
    case 6:
      block.form.tiles ^= 1;
      break;
    case 7:
      block.form.elements = value << (what / 16);
      break;
    case 8:
      block.form.patch_bytes = value << (what / 16);
      break;
    case 9:
      block.target_bytes = value % kMostTarget;
      break;
    case 10:
      block.payload.resize(value % (block.payload.size() + 1));
      break;
    case 11:
      if (!block.payload.empty())
        block.payload[value % block.payload.size()] = static_cast<std::uint8_t>(value >> 24);
      break;
    default:  // none
      break;
  }
}

void decode_everywhere(const Block& block) {
  std::uint8_t* const payload = exactly(block.payload.size());
  if (!block.payload.empty()) {
    std::memcpy(payload, block.payload.data(), block.payload.size());
  }
  std::uint8_t* const target = exactly(block.target_bytes);
  std::uint8_t* const result = exactly(block.target_bytes);
  std::memset(result, 0x3C, block.target_bytes);
  const Recomputed how{static_cast<Function>(block.form.nonce % 4), block.form.type};
  for (const Isa isa : {Isa::kScalar, Isa::kAvx2, Isa::kAvx512}) {
    if (!isa_supported(isa)) continue;
    set_isa(isa);
    (void)decode_block(block.form, payload, block.payload.size(), target, block.target_bytes,
                       serial_executor());
    (void)decode_block_function(block.form, payload, block.payload.size(), target,
                                block.target_bytes, how, serial_executor());
    (void)may_be_result(block.form, payload, block.payload.size(), how, result, block.target_bytes);
  }
  std::free(payload);
  std::free(target);
  std::free(result);
}

}  // namespace
}  // namespace pleat::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace pleat::fuzz;
  Input input{data, size};
  const std::uint8_t* const last = data + size;
  // The lies come from the end, so that a longer input changes no header.
  Input lies{size > 10 ? last - 10 : data, size > 10 ? std::size_t{10} : 0};
  input.size -= lies.size;
  Block block = put_together(input);
  lie(lies, block);
  lie(lies, block);
  if (block.target_bytes <= kMostTarget) decode_everywhere(block);
  return 0;
}
