// The blocks of a file (interpose/trace/format.h), packed by zstd.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "interpose/trace/format.h"
#include "interpose/trace/mapped.h"
#include "interpose/trace/names.h"
#include "interpose/trace/native_stack.h"

namespace pleat::trace {

// Numbers and texts behind one another. Out of memory it takes nothing more, and says so.
class Output {
 public:
  void number(std::uint64_t value) noexcept {
    std::uint8_t* at = bytes_.reserve(kMostNumberBytes);
    if (at == nullptr) return fail();
    std::size_t count = 0;
    for (; value >= 0x80; value >>= 7) at[count++] = static_cast<std::uint8_t>(value | 0x80);
    at[count++] = static_cast<std::uint8_t>(value);
    bytes_.advance(count);
  }
  // `number(i)` for each i below `count`.
  template <class Number>
  void numbers(std::size_t count, Number&& number) noexcept {
    std::uint8_t* const begin = bytes_.reserve(count * kMostNumberBytes);
    if (begin == nullptr) return fail();
    std::uint8_t* at = begin;
    for (std::size_t i = 0; i < count; ++i) {
      std::uint64_t value = number(i);
      for (; value >= 0x80; value >>= 7) *at++ = static_cast<std::uint8_t>(value | 0x80);
      *at++ = static_cast<std::uint8_t>(value);
    }
    bytes_.advance(static_cast<std::size_t>(at - begin));
  }
  void raw(const void* data, std::size_t bytes) noexcept;
  void text(std::string_view text) noexcept {
    number(text.size());
    raw(text.data(), text.size());
  }
  void clear() noexcept {
    bytes_.clear();
    failed_ = false;
  }
  [[nodiscard]] bool failed() const noexcept { return failed_; }
  [[nodiscard]] std::span<const std::uint8_t> bytes() noexcept {
    return {bytes_.data(), bytes_.size()};
  }

 private:
  void fail() noexcept { failed_ = true; }
  ByteBuffer bytes_;
  bool failed_ = false;
};

// Why a file takes no more.
enum class FileState : std::uint8_t { kOpen, kFull, kFailed, kLost };

// The file. In one thread at a time.
class BlockWriter {
 public:
  // Creates the file, which must not exist. 0, or the error's number.
  [[nodiscard]] int create(const char* path) noexcept;
  // Nothing is written from now on. Closes the file.
  void close() noexcept;
  // The same, and the file counts as full.
  void close_full() noexcept {
    close();
    state_ = FileState::kFull;
  }
  // Of a full file: less may fit.
  void try_again() noexcept {
    if (state_ == FileState::kFull) state_ = FileState::kOpen;
  }

  void process(std::string_view json) noexcept;
  // Texts, frames, stacks and modules that the file does not have yet.
  void names(Names& names, Modules& modules) noexcept;
  // At most kMostRecords, in order of time. Addresses are written relative to `base`.
  void records(std::span<const PleatTraceEvent> records, std::uint64_t base) noexcept;
  // The index and the end of the file.
  void end() noexcept;

  [[nodiscard]] FileState state() const noexcept { return state_; }
  [[nodiscard]] int error() const noexcept { return error_; }
  [[nodiscard]] std::uint64_t file_bytes() const noexcept { return offset_; }
  [[nodiscard]] std::uint64_t device() const noexcept { return device_; }
  [[nodiscard]] std::uint64_t inode() const noexcept { return inode_; }
  // A block with which the file would be larger than this, its end included, is not written: then
  // the file is kFull. 0: it may have any size.
  void set_most_bytes(std::uint64_t bytes) noexcept { most_bytes_ = bytes; }

 private:
  template <class Value, class Coded>
  void column(std::uint8_t id, Coding coding, std::span<const PleatTraceEvent> records,
              Value&& value, Coded&& coded) noexcept;
  void block(BlockType type, std::uint32_t count, std::uint64_t first_time,
             std::uint64_t last_time) noexcept;
  void put(const void* data, std::size_t bytes) noexcept;
  [[nodiscard]] bool is_ours() noexcept;
  [[nodiscard]] bool has_room(std::size_t bytes) noexcept;

  int file_ = -1;
  std::uint64_t device_ = 0, inode_ = 0;  // of the file: the job may close our descriptor
  std::uint64_t offset_ = 0, most_bytes_ = 0;
  FileState state_ = FileState::kOpen;
  int error_ = 0;
  Output raw_, index_, part_;
  ByteBuffer packed_;
  std::uint32_t blocks_ = 0;
  std::size_t texts_ = 0, frames_ = 0, stacks_ = 0, modules_ = 0;  // that the file has
  void* zstd_ = nullptr;
};

}  // namespace pleat::trace
