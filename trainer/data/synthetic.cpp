#include "trainer/data/synthetic.hpp"

#include <algorithm>
#include <memory>
#include <optional>

#include "trainer/number.hpp"

namespace trainer {
namespace {

// SplitMix64: small, and the same everywhere.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}
  std::uint64_t next() {
    std::uint64_t x = state_ += 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
  }
  std::uint64_t below(std::uint64_t limit) { return next() % limit; }

 private:
  std::uint64_t state_;
};

struct Bytes {
  std::vector<std::uint8_t> patterns, train, test, train_labels, test_labels;
};

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  for (;;) {
    const std::size_t end = text.find(separator);
    parts.push_back(text.substr(0, end));
    if (end == text.npos) return parts;
    text.remove_prefix(end + 1);
  }
}

// Values on a grid of 7 x 7 (or as many as there are pixels), straight lines between them.
void make_pattern(std::span<std::uint8_t> plane, int height, int width, Random& random) {
  constexpr std::size_t kGrid = 7;
  std::uint8_t grid[kGrid + 1][kGrid + 1];
  for (auto& row : grid) {
    for (auto& value : row) value = random.next() & 1 ? 255 : 0;
  }
  const auto rows = static_cast<std::size_t>(height), columns = static_cast<std::size_t>(width);
  for (std::size_t y = 0; y < rows; ++y) {
    const std::size_t gy = y * kGrid / rows, fy = y * kGrid * 256 / rows % 256;
    for (std::size_t x = 0; x < columns; ++x) {
      const std::size_t gx = x * kGrid / columns, fx = x * kGrid * 256 / columns % 256;
      const std::size_t above = grid[gy][gx] * (256 - fx) + grid[gy][gx + 1] * fx;
      const std::size_t below = grid[gy + 1][gx] * (256 - fx) + grid[gy + 1][gx + 1] * fx;
      plane[y * columns + x] = static_cast<std::uint8_t>((above * (256 - fy) + below * fy) >> 16);
    }
  }
}

void make_images(const SyntheticOptions& options, std::uint64_t count, std::span<const std::uint8_t> patterns,
                 Random random, std::vector<std::uint8_t>& images, std::vector<std::uint8_t>& labels) {
  const ImageShape& shape = options.shape;
  const auto rows = static_cast<std::size_t>(shape.height), columns = static_cast<std::size_t>(shape.width);
  const std::size_t reach = std::min(rows, columns) >= 16 ? 2 : 1;
  images.resize(count * shape.pixels());
  labels.resize(count);
  std::uint8_t* out = images.data();
  for (std::uint64_t i = 0; i < count; ++i) {
    // The first of the list have every class once.
    const auto classes = static_cast<std::uint64_t>(options.classes);
    const std::uint64_t label = i < classes ? i : random.below(classes);
    labels[i] = static_cast<std::uint8_t>(label);
    const std::size_t down = random.below(2 * reach + 1), right = random.below(2 * reach + 1);
    const std::uint8_t* plane = patterns.data() + label * shape.pixels();
    std::uint64_t noise = 0;
    int left = 0;
    for (int channel = 0; channel < shape.channels; ++channel, plane += rows * columns) {
      for (std::size_t y = 0; y < rows; ++y) {
        const std::uint8_t* row = plane + (y + down) % rows * columns;
        std::size_t from = right % columns;
        for (std::size_t x = 0; x < columns; ++x) {
          if (left == 0) {
            noise = random.next();
            left = 8;
          }
          *out++ = static_cast<std::uint8_t>((row[from] + (noise & 0xff)) / 2);
          noise >>= 8;
          --left;
          if (++from == columns) from = 0;
        }
      }
    }
  }
}

}  // namespace

Result<SyntheticOptions> parse_synthetic(std::string_view text) {
  const Error wrong{Errc::usage, "'synthetic" + std::string(text) + "' is not understood",
                    "synthetic, synthetic:IMAGES or synthetic:IMAGESxCHANNELSxHEIGHTxWIDTH, then :CLASSES"};
  SyntheticOptions options;
  if (text.empty()) return options;
  if (text.front() != ':') return wrong;
  const auto parts = split(text.substr(1), ':');
  if (parts.size() > 2) return wrong;
  std::vector<std::uint64_t> sizes;
  for (const auto part : split(parts[0], 'x')) {
    const auto size = number_in<std::uint64_t>(part);
    if (!size) return wrong;
    sizes.push_back(*size);
  }
  if (sizes.size() != 1 && sizes.size() != 4) return wrong;
  if (sizes.size() == 1) sizes.insert(sizes.end(), {1, 28, 28});
  std::uint64_t classes = 10;
  if (parts.size() == 2) {
    const auto given = number_in<std::uint64_t>(parts[1]);
    if (!given) return wrong;
    classes = *given;
  }
  if (!within_limits(sizes[0], sizes[1], sizes[2], sizes[3]) ||
      sizes[0] * sizes[1] * sizes[2] * sizes[3] > kMaxSyntheticBytes) {
    return Error{Errc::usage, "'synthetic" + std::string(text) + "': " +
                                  describe(sizes[0], sizes[1], sizes[2], sizes[3]) + " are out of range"};
  }
  if (classes < 2 || classes > kMaxClasses || classes > sizes[0]) {
    return Error{Errc::usage, "'synthetic" + std::string(text) + "': " + std::to_string(classes) +
                                  " classes are not 2 to " + std::to_string(kMaxClasses) +
                                  " and at most one an image"};
  }
  options.train = sizes[0];
  options.shape = {static_cast<int>(sizes[1]), static_cast<int>(sizes[2]), static_cast<int>(sizes[3])};
  options.classes = static_cast<int>(classes);
  return options;
}

Dataset make_synthetic(const SyntheticOptions& options, std::uint64_t seed) {
  auto bytes = std::make_shared<Bytes>();
  Random random(seed);
  const ImageShape& shape = options.shape;
  const std::size_t plane = static_cast<std::size_t>(shape.height) * static_cast<std::size_t>(shape.width);
  bytes->patterns.resize(static_cast<std::size_t>(options.classes) * shape.pixels());
  for (std::size_t at = 0; at < bytes->patterns.size(); at += plane) {
    make_pattern(std::span(bytes->patterns).subspan(at, plane), shape.height, shape.width, random);
  }
  // Streams of their own: more training images leave the test images as they are.
  const Random train(random.next()), test(random.next());
  make_images(options, options.train, bytes->patterns, train, bytes->train, bytes->train_labels);
  make_images(options, std::max<std::uint64_t>(1, options.train / 6), bytes->patterns, test, bytes->test,
              bytes->test_labels);
  Dataset data;
  data.origin = "synthetic";
  data.shape = shape;
  data.classes = options.classes;
  data.train = {bytes->train, bytes->train_labels};
  data.test = {bytes->test, bytes->test_labels};
  data.owner = bytes;
  const std::span<const std::uint8_t> images[] = {data.train.images};
  find_statistics(data, images);
  return data;
}

}  // namespace trainer
