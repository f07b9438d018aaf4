// The IDX format of MNIST and its relatives: 0, 0, 8 (bytes), the number of dimensions, one big-endian 32-bit
// size per dimension, then the bytes. Images have three dimensions, labels one. Pure.
#pragma once

#include <cstdint>
#include <span>

#include "trainer/data/assemble.hpp"

namespace trainer {

enum class IdxKind { images, labels };

constexpr std::size_t idx_header_bytes(IdxKind kind) { return kind == IdxKind::images ? 16 : 8; }

struct IdxFile {
  std::uint64_t count = 0;
  ImageShape shape;  // of images
  std::span<const std::uint8_t> content;
  std::size_t promised_bytes = 0;  // the whole file, by its header
};

// The header alone: `content` is left empty and the length of `file` does not count, unless it is too short.
Result<IdxFile> parse_idx_header(std::span<const std::uint8_t> file, IdxKind kind);
// All of it, not a byte less or more than the header promises.
Result<IdxFile> parse_idx(std::span<const std::uint8_t> file, IdxKind kind);

}  // namespace trainer
