#include "trainer/data/idx.hpp"

#include <algorithm>

namespace trainer {
namespace {

std::uint32_t big_endian(std::span<const std::uint8_t> bytes) {
  return std::uint32_t(bytes[0]) << 24 | std::uint32_t(bytes[1]) << 16 | std::uint32_t(bytes[2]) << 8 |
         bytes[3];
}

}  // namespace

Result<IdxFile> parse_idx_header(std::span<const std::uint8_t> file, IdxKind kind) {
  const char* what = kind == IdxKind::images ? "images" : "labels";
  const std::size_t header = idx_header_bytes(kind);
  if (file.size() < header) {
    return at_byte(file.size(),
                   "the file ends within the " + std::to_string(header) + " bytes of its header");
  }
  const std::uint32_t magic = big_endian(file);
  if (magic != (kind == IdxKind::images ? 0x803u : 0x801u)) {
    return at_byte(0, std::string("not an IDX file of ") + what + ": it starts with " +
                          std::to_string(magic) + " instead of " +
                          (kind == IdxKind::images ? "2051" : "2049"));
  }
  IdxFile idx;
  idx.count = big_endian(file.subspan(4));
  std::uint32_t height = 1, width = 1;
  if (kind == IdxKind::images) {
    height = big_endian(file.subspan(8));
    width = big_endian(file.subspan(12));
  }
  if (!within_limits(idx.count, 1, height, width)) {
    return at_byte(4, kind == IdxKind::images ? describe(idx.count, 1, height, width) + " are out of range"
                                              : std::to_string(idx.count) + " labels are out of range");
  }
  idx.shape = {1, static_cast<int>(height), static_cast<int>(width)};
  idx.promised_bytes = header + idx.count * idx.shape.pixels();
  return idx;
}

Result<IdxFile> parse_idx(std::span<const std::uint8_t> file, IdxKind kind) {
  auto idx = parse_idx_header(file, kind);
  if (!idx) return idx;
  if (file.size() != idx->promised_bytes) {
    return at_byte(std::min(file.size(), idx->promised_bytes), "the file has " + std::to_string(file.size()) +
                                                                   " bytes, its header promises " +
                                                                   std::to_string(idx->promised_bytes));
  }
  idx->content = file.subspan(idx_header_bytes(kind));
  return idx;
}

}  // namespace trainer
