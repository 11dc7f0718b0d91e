// Where the sections of a grouped payload lie, and the jobs that decode a block or one group of it.
// Every length and offset is checked before it is followed: a payload may be of any origin.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "compress/format.h"
#include "compress/kernels.h"
#include "compress/near_zero/near_zero.h"
#include "compress/types.h"

namespace pleat::compress {

struct GroupedSections {
  Header header;
  GroupedLayout layout;
  bool transformed, scaled, compacted;
  const std::uint8_t* metadata;
  const std::uint8_t* codes;
  const std::uint8_t* codes_end;  // block offsets follow if the payload is compacted
  const std::uint8_t* escapes;
  Exponents exponents;
  const std::int8_t* parts;
  NearZeroSection near_zero;

  // How many groups have 256 elements; a shorter one may follow.
  [[nodiscard]] std::size_t whole_groups() const noexcept {
    return header.elements / kGroupElements;
  }

  // Fills a decoder's job for a block, all but `target` and `stream`. False if the payload is
  // damaged.
  [[nodiscard]] bool block_job(std::size_t block, DecodeGroups* job) const noexcept;
  // The same for one whole group.
  [[nodiscard]] bool group_job(std::size_t group, DecodeGroups* job) const noexcept;
};

// The sections of `payload`, which holds header.payload_bytes bytes; empty if the lengths do not
// agree.
[[nodiscard]] std::optional<GroupedSections> read_sections(const Header& header,
                                                           const std::uint8_t* payload) noexcept;

}  // namespace pleat::compress
