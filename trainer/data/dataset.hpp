// Labelled images as they lie in memory or in a mapped file: bytes, before any scaling. Who reads which
// format is in open.hpp; loader.hpp makes batches of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "trainer/model/spec.hpp"

namespace trainer {

// Images [index][channel][row][column] and one label each. The bytes belong to `owner`.
struct Split {
  std::span<const std::uint8_t> images;
  std::span<const std::uint8_t> labels;  // below Dataset::classes
  std::size_t size() const { return labels.size(); }
};

struct Dataset {
  std::string origin;  // what was opened, for messages
  ImageShape shape;
  int classes = 0;
  Split train;
  Split test;
  // Per channel, of the training images as 0..1: an image is fed as (byte / 255 - mean) / deviation.
  std::vector<float> mean;
  std::vector<float> deviation;
  std::shared_ptr<const void> owner;  // keeps the bytes
};

}  // namespace trainer
