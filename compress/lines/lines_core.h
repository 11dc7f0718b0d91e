// Finds the lines of a span that must come back exact, keeps them in a section of their own, and
// restores them. "Lines" in compress/cuda/device_asides.h gives the purpose; the conditions are
// those of compress/lines/lines.h and the steps those of the groups that the encode has just
// written. Written against a Block (block_core.h) and a Warp (rows_core.h). The last block of a job
// numbers the marked lines and copies the first ones, so the section's contents do not depend on
// the order of blocks.
#pragma once

#include "compress/lines/columns_core.h"
#include "compress/lines/rows_core.h"

namespace pleat::compress {
namespace {

// The work of the last block of a job that keeps lines.
//   any  false: no row is marked, so none is looked for. Columns: true
template <class T, class Block>
PLEAT_HD inline void finish_lines(Block& block, const cuda::LineJob& job, bool any) {
  using Word = typename T::Word;
  LineShape shape = LineShape::of<T>(job);
  uint8_t* const section = static_cast<uint8_t*>(job.section);
  if (shape.columns) mark_columns<T>(block, job);
  auto* const numbers = reinterpret_cast<Stored32*>(section + shape.numbers_at());
  const auto* const flat = reinterpret_cast<const Stored32*>(section + shape.flat_at());
  const uint32_t found =
      any ? block.numbered(
                shape.words(), [&](uint32_t word) { return count_bits(flat[word]); },
                [&](uint32_t word, uint32_t rank) {
                  for (uint32_t left = flat[word]; left != 0 && rank < shape.most;
                       left &= left - 1, ++rank)
                    numbers[rank] = word * 32 + lowest_bit(left);
                })
          : 0;
  block.sync();
  const uint32_t kept = found < shape.most ? found : shape.most;
  const Word* const source = static_cast<const Word*>(job.source);
  Word* const to = reinterpret_cast<Word*>(section + shape.kept_at());
  const uint64_t each = shape.line_elements();
  if (shape.columns) {
    for (uint32_t k = 0; k < kept; ++k)
      block.each(each,
                 [&](uint64_t e) { to[k * each + e] = source[shape.element(numbers[k], e)]; });
  } else {
    block.by_warps(
        kept, [&](uint64_t k) { return uint32_t{numbers[k]}; },
        [&](uint64_t k, uint32_t line, unsigned lane) {
          for (uint64_t e = lane; e < each; e += 32)
            to[k * each + e] = source[shape.element(line, e)];
        });
  }
  block.once([&] {
    LineHead head{};
    head.magic = kLineMagic;
    head.kept = kept;
    head.elements = job.elements;
    head.length = job.length;
    head.most = job.most;
    head.look = job.look;
    head.type = T::kType;
    *reinterpret_cast<LineHead*>(section) = head;
    shape.most = found;
    job.verdict->escapes = 0;
    job.verdict->kept = found;
    job.verdict->payload_bytes = shape.section_bytes();
  });
  block.publish(job.verdict, cuda::Outcome::kDone);
}

// ---- the way back ----

template <class T>
PLEAT_HD inline bool lines_fit(const cuda::LineJob& job) {
  const LineHead& head = *static_cast<const LineHead*>(job.section);
  return head.magic == kLineMagic && head.kept <= job.most && head.elements == job.elements &&
         head.length == job.length && head.most == job.most && head.look == job.look &&
         head.type == T::kType;
}

// A tile of a restore, by warp `warp` of eight and its lanes. False if the section is damaged.
template <class T>
PLEAT_HD inline bool restore_line_tile(const cuda::LineJob& job, uint32_t tile, unsigned warp,
                                       unsigned lane) {
  using Word = typename T::Word;
  const LineShape shape = LineShape::of<T>(job);
  const uint8_t* const section = static_cast<const uint8_t*>(job.section);
  Word* const target = static_cast<Word*>(job.target);
  const uint64_t each = shape.line_elements();
  bool good = true;
  if (tile < shape.zero_tiles()) {
    const auto* const marks = reinterpret_cast<const Stored32*>(section + shape.zero_at());
    for (unsigned n = 0; n < kWordsPerRestoreTile / 8; ++n) {
      const uint64_t word = uint64_t{tile} * kWordsPerRestoreTile + warp * 8 + n;
      if (word >= shape.words()) break;
      for (uint32_t left = marks[word]; left != 0; left &= left - 1) {
        const uint64_t line = word * 32 + lowest_bit(left);
        good &= line < shape.lines();
        for (uint64_t e = lane; e < each && line < shape.lines(); e += 32)
          target[shape.element(line, e)] = 0;
      }
    }
    return good;
  }
  const uint64_t first = (tile - shape.zero_tiles()) * cuda::kElementsPerTile;
  const uint64_t end = static_cast<const LineHead*>(job.section)->kept * each;
  const auto* const numbers = reinterpret_cast<const Stored32*>(section + shape.numbers_at());
  const Word* const from = reinterpret_cast<const Word*>(section + shape.kept_at());
  for (unsigned n = 0; n < cuda::kElementsPerTile; n += 256) {
    const uint64_t i = first + n + warp * 32 + lane;
    if (i >= end) break;
    const uint64_t k = i / each, line = numbers[k];
    good &= line < shape.lines();
    if (line < shape.lines()) target[shape.element(line, i - k * each)] = from[i];
  }
  return good;
}

}  // namespace
}  // namespace pleat::compress
