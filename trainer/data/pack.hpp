// The packed file: a whole data set that is mapped instead of read, in this layout (numbers little-endian).
//
//       0  magic, "TRNPACK\n"
//       8  u32 version, 1
//      12  u32 channels, u32 height, u32 width, u32 classes, u32 zero
//      32  u64 training images, u64 test images
//      48  f32 mean, f32 deviation; once per channel
//          zeros up to 4096
//    4096  training images [index][channel][row][column], zeros up to a multiple of 4096
//          test images, zeros up to a multiple of 4096
//          training labels, test labels, a byte each
//          u64 XXH64 (seed 0) of everything before it; with it the file ends
//
// Pure. open.hpp opens and makes such files.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "trainer/data/assemble.hpp"

namespace trainer {

inline constexpr std::size_t kPackPage = 4096;

struct PackLayout {
  std::size_t train_images = 0;  // where each begins
  std::size_t test_images = 0;
  std::size_t train_labels = 0;
  std::size_t test_labels = 0;
  std::size_t checksum = 0;
  std::size_t bytes = 0;  // of the file
};
PackLayout pack_layout(const ImageShape& shape, std::uint64_t train, std::uint64_t test);

bool is_pack(std::span<const std::uint8_t> file);

// Views into `file`, all of it checked: lengths, checksum, labels. `origin` and `owner` are the caller's.
Result<Dataset> parse_pack(std::span<const std::uint8_t> file);

// The first kPackPage bytes, from shape, classes, mean and deviation of `data` and these counts.
std::vector<std::uint8_t> pack_header(const Dataset& data, std::uint64_t train, std::uint64_t test);

}  // namespace trainer
