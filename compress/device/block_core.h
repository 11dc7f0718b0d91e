// A block of threads, which ends the jobs of a launch, and the parts of a payload that do not
// depend on its form. Code that ends a job is written against a Block:
//
// - block.each(n, f): f(i) for i in [0, n), in any order, by any thread.
// - block.by_warps(n, g, f): f(i, g(i), lane) for i in [0, n) and all lanes < 32, in any order; all
//   lanes call g(i) before any calls f.
// - block.ranked(n, marked, f): f(i, rank) for each i with marked(i); ranks are 0, 1, ... in order.
// - block.numbered(n, count, f): as ranked(), where i stands for count(i) things: f(i, rank of the
//   first), for each i with any. Returns how many things there are, to all.
// - block.once(f): f() in one thread.
// - block.sync(): after it, all writes so far are visible to all threads of the block.
// - block.publish(v, outcome): sets v->outcome; all writes so far are visible to any host or device
//   code that sees it.
#pragma once

#include "compress/device/jobs.h"
#include "compress/device/lane_core.h"
#include "compress/format.h"

namespace pleat::compress {
namespace {

// A group of a tile: its number in the span, and its elements. Beyond the span's last group it is
// the last group again, so that warps stay whole, but not `own`.
struct GroupOfTile {
  uint64_t group;
  unsigned elements;
  bool own;

  PLEAT_HD GroupOfTile(uint64_t span_elements, uint64_t tile, unsigned place) {
    const uint64_t last = (span_elements - 1) / kGroupSize;
    group = tile * cuda::kGroupsPerTile + place;
    own = group <= last;
    if (!own) group = last;
    const uint64_t left = span_elements - group * kGroupSize;
    elements = left < kGroupSize ? static_cast<unsigned>(left) : kGroupSize;
  }
};

PLEAT_HD inline void write_header(const Header& header, void* payload) {
  *static_cast<Header*>(payload) = header;
}

// Copies words of four bytes, by all threads of a block.
template <class Block>
PLEAT_HD inline void copy_words(Block& block, void* to, const void* from, uint64_t bytes) {
  block.each(bytes / 4, [&](uint64_t i) {
    static_cast<Stored32*>(to)[i] = static_cast<const Stored32*>(from)[i];
  });
}

// The work of the last block of a job.
template <class Block>
PLEAT_HD inline void finish_packed(Block& block, const cuda::Job& job, const Header& header,
                                   bool missed, uint64_t wanted_bytes = 0) {
  block.once([&] {
    *static_cast<Header*>(job.target) = header;
    if (missed) static_cast<Header*>(job.target)->magic = 0;
    job.verdict->escapes = 0;
    job.verdict->payload_bytes = missed ? wanted_bytes : header.payload_bytes;
  });
  block.publish(job.verdict, missed ? cuda::Outcome::kKeepRaw : cuda::Outcome::kDone);
}
PLEAT_HD inline Header packed_header(const cuda::Job& job, PayloadKind kind, unsigned type) {
  Header header;
  header.kind = static_cast<uint8_t>(kind);
  header.type = static_cast<uint8_t>(type);
  header.elements = job.elements;
  header.nonce = job.nonce;
  return header;
}

// True if the payload is what the job expects: the sizes agree, so no read lies outside it.
PLEAT_HD inline bool header_fits(const Header& header, uint64_t elements, PayloadKind kind,
                                 unsigned type, uint64_t payload_bytes, uint64_t code_bytes) {
  unsigned wrong = header.magic ^ kMagic;
  wrong |= header.version ^ unsigned { kFormatVersion };
  wrong |= header.kind ^ static_cast<unsigned>(kind);
  wrong |= (header.type ^ type) | header.bits | header.flags | header.reserved;
  uint64_t wrong_sizes = header.third_value;
  wrong_sizes |= header.elements ^ elements;
  wrong_sizes |= header.payload_bytes ^ payload_bytes;
  wrong_sizes |= header.code_bytes ^ code_bytes;
  return (wrong | (wrong_sizes != 0 ? 1u : 0u)) == 0;
}

}  // namespace
}  // namespace pleat::compress
