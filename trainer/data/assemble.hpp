// What every reader hands over, and how two of them become a Dataset: one set of limits and checks for all
// formats. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "trainer/data/dataset.hpp"

namespace trainer {

inline constexpr std::uint64_t kMaxImages =
    0xffffffffu / 20;  // beyond it the sampler's shuffle is another one
inline constexpr std::uint64_t kMaxChannels = 256;
inline constexpr std::uint64_t kMaxSide = 8192;
inline constexpr int kMaxClasses = 256;  // labels are bytes

// One split as it was found. The bytes belong to someone else.
struct Part {
  ImageShape shape;
  std::span<const std::uint8_t> images;  // as in Split
  std::span<const std::uint8_t> labels;
  // Where the labels come from, for messages: image i's is at byte first_label + i * label_stride.
  std::string labels_file;
  std::size_t first_label = 0;
  std::size_t label_stride = 1;
};

// The error of bad content: "byte 4: TEXT". Whoever knows the file puts it in front.
Error at_byte(std::size_t offset, const std::string& text);

// "60000 images of 1x28x28", and whether they are within the limits above: every reader asks before it
// multiplies or allocates.
std::string describe(std::uint64_t count, std::uint64_t channels, std::uint64_t height, std::uint64_t width);
bool within_limits(std::uint64_t count, std::uint64_t channels, std::uint64_t height, std::uint64_t width);

// Checks that the parts fit each other and that all labels are below the number of classes: `classes`, or if
// that is 0 one more than the largest training label, at least 2. Finds mean and deviation.
Result<Dataset> assemble(std::string origin, const Part& train, const Part& test, int classes,
                         std::shared_ptr<const void> owner);

// An error naming the first label that is not below `classes`; label i is at byte first + i * stride.
Result<> check_labels(std::span<const std::uint8_t> labels, int classes, std::size_t first,
                      std::size_t stride);

// Dataset::mean and ::deviation of these images of data.shape. A channel without any variation has
// deviation 1.
void find_statistics(Dataset& data, std::span<const std::span<const std::uint8_t>> images);

}  // namespace trainer
