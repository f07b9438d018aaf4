#include "trainer/data/assemble.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

namespace trainer {
namespace {

using Histogram = std::array<std::uint64_t, 256>;

// Four tables: equal bytes in a row, as in every background, would wait for one another in one.
void count_bytes(std::span<const std::uint8_t> bytes, std::array<Histogram, 4>& tables) {
  std::size_t i = 0;
  for (; i + 4 <= bytes.size(); i += 4) {
    ++tables[0][bytes[i]];
    ++tables[1][bytes[i + 1]];
    ++tables[2][bytes[i + 2]];
    ++tables[3][bytes[i + 3]];
  }
  for (; i < bytes.size(); ++i) ++tables[0][bytes[i]];
}

Result<> check_counts(const Part& part) {
  const std::size_t images = part.images.size() / part.shape.pixels();
  if (images == part.labels.size()) return {};
  return Error{Errc::usage, "'" + part.labels_file + "': " + std::to_string(part.labels.size()) +
                                " labels for " + std::to_string(images) + " images"};
}

std::string text_of(const ImageShape& shape) {
  return std::to_string(shape.channels) + "x" + std::to_string(shape.height) + "x" +
         std::to_string(shape.width);
}

}  // namespace

Error at_byte(std::size_t offset, const std::string& text) {
  return Error{Errc::usage, "byte " + std::to_string(offset) + ": " + text};
}

std::string describe(std::uint64_t count, std::uint64_t channels, std::uint64_t height, std::uint64_t width) {
  return std::to_string(count) + " images of " + std::to_string(channels) + "x" + std::to_string(height) +
         "x" + std::to_string(width);
}

bool within_limits(std::uint64_t count, std::uint64_t channels, std::uint64_t height, std::uint64_t width) {
  const auto is_side = [](std::uint64_t side) { return side >= 1 && side <= kMaxSide; };
  return count >= 1 && count <= kMaxImages && channels >= 1 && channels <= kMaxChannels && is_side(height) &&
         is_side(width);
}

Result<> check_labels(std::span<const std::uint8_t> labels, int classes, std::size_t first,
                      std::size_t stride) {
  const auto bad = std::find_if(labels.begin(), labels.end(), [&](auto label) { return label >= classes; });
  if (bad == labels.end()) return {};
  const auto index = static_cast<std::size_t>(bad - labels.begin());
  return at_byte(first + index * stride, "label " + std::to_string(*bad) + " of image " +
                                             std::to_string(index) + " is not one of the " +
                                             std::to_string(classes) + " classes");
}

Result<Dataset> assemble(std::string origin, const Part& train, const Part& test, int classes,
                         std::shared_ptr<const void> owner) {
  if (train.shape != test.shape) {
    return Error{Errc::usage, "'" + origin + "': training images are " + text_of(train.shape) +
                                  ", test images " + text_of(test.shape)};
  }
  for (const Part* part : {&train, &test}) {
    if (auto fine = check_counts(*part); !fine) return fine.error();
  }
  if (classes == 0) {
    const auto largest = std::max_element(train.labels.begin(), train.labels.end());
    classes = std::max(2, largest == train.labels.end() ? 0 : *largest + 1);
  }
  for (const Part* part : {&train, &test}) {
    auto fine = check_labels(part->labels, classes, part->first_label, part->label_stride);
    if (!fine) return std::move(fine.error()).under("'" + part->labels_file + "'");
  }
  Dataset data;
  data.origin = std::move(origin);
  data.shape = train.shape;
  data.classes = classes;
  data.train = {train.images, train.labels};
  data.test = {test.images, test.labels};
  data.owner = std::move(owner);
  const std::span<const std::uint8_t> images[] = {data.train.images};
  find_statistics(data, images);
  return data;
}

void find_statistics(Dataset& data, std::span<const std::span<const std::uint8_t>> images) {
  const auto channels = static_cast<std::size_t>(data.shape.channels);
  const std::size_t plane = data.shape.pixels() / channels;
  data.mean.clear();
  data.deviation.clear();
  for (std::size_t channel = 0; channel < channels; ++channel) {
    std::array<Histogram, 4> tables{};
    for (const auto& some : images) {
      for (std::size_t at = channel * plane; at < some.size(); at += channels * plane) {
        count_bytes(some.subspan(at, plane), tables);
      }
    }
    std::uint64_t count = 0, sum = 0;
    for (std::size_t value = 0; value < 256; ++value) {
      for (std::size_t t = 1; t < 4; ++t) tables[0][value] += tables[t][value];
      count += tables[0][value];
      sum += tables[0][value] * value;
    }
    const double mean = static_cast<double>(sum) / static_cast<double>(count) / 255;
    double variance = 0;
    for (std::size_t value = 0; value < 256; ++value) {
      const double distance = static_cast<double>(value) / 255 - mean;
      variance += static_cast<double>(tables[0][value]) * distance * distance;
    }
    variance /= static_cast<double>(count);
    data.mean.push_back(static_cast<float>(mean));
    // One value only: rounding may leave a speck of variance, by which nothing should be divided.
    data.deviation.push_back(variance > 1e-12 ? static_cast<float>(std::sqrt(variance)) : 1.0f);
  }
}

}  // namespace trainer
