// A binary of CIFAR-10: records of one label (0 to 9) and 32 x 32 bytes each of red, green and blue. Pure.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "trainer/data/assemble.hpp"

namespace trainer {

inline constexpr std::size_t kCifarRecord = 1 + 3 * 32 * 32;
inline constexpr std::size_t kCifarRecords = 10000;  // of each of its files
inline constexpr int kCifarClasses = 10;
inline constexpr ImageShape kCifarShape{3, 32, 32};

// Appends the `records` of a file. The format has no header: only its length tells a whole file.
Result<> parse_cifar(std::span<const std::uint8_t> file, std::size_t records,
                     std::vector<std::uint8_t>& images, std::vector<std::uint8_t>& labels);

}  // namespace trainer
