// Images made of nothing, which a network can learn to tell apart: every class has a pattern of soft blocks,
// and an image is its class's pattern, moved by up to a pixel or two, under as much noise. For trials
// without data and for measuring. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "trainer/data/assemble.hpp"

namespace trainer {

struct SyntheticOptions {
  std::uint64_t train = 12000;  // there are a sixth as many test images, at least one
  ImageShape shape;
  int classes = 10;
};

inline constexpr std::uint64_t kMaxSyntheticBytes = std::uint64_t(8) << 30;

// What comes after the word: "", ":N", ":NxCxHxW", either followed by ":CLASSES".
Result<SyntheticOptions> parse_synthetic(std::string_view text);

// The same bytes for the same options and seed, on every machine.
Dataset make_synthetic(const SyntheticOptions& options, std::uint64_t seed);

}  // namespace trainer
