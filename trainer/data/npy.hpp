// A NumPy array file, versions 1 to 3: "\x93NUMPY", two bytes of version, the length of the header (16 bits,
// from version 2 on 32), the header, which is a Python dictionary as text, then the numbers. Pure.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "trainer/data/assemble.hpp"

namespace trainer {

enum class NpyType { u1, i4, i8 };

struct NpyArray {
  NpyType type = NpyType::u1;
  std::vector<std::uint64_t> shape;
  std::size_t offset = 0;  // of the content
  std::span<const std::uint8_t> content;
};

// Little-endian arrays in C order, of up to four dimensions, not a byte less or more than promised.
Result<NpyArray> parse_npy(std::span<const std::uint8_t> file);

// The array as images: u1 of [N][H][W], [N][C][H][W] or [N][H][W][C]; four dimensions are the last of these
// when C would be 1 or 3. `moved` holds the images if their bytes had to be put in another order.
struct NpyImages {
  ImageShape shape;
  std::span<const std::uint8_t> images;
};
Result<NpyImages> npy_images(const NpyArray& array, std::vector<std::uint8_t>& moved);

// The array as labels 0 to 255; `narrowed` holds them if they were wider.
Result<std::span<const std::uint8_t>> npy_labels(const NpyArray& array, std::vector<std::uint8_t>& narrowed);

std::size_t npy_item_bytes(NpyType type);

}  // namespace trainer
