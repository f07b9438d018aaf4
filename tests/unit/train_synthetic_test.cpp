#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "trainer/data/synthetic.hpp"

namespace trainer {
namespace {

std::vector<std::uint8_t> copy(std::span<const std::uint8_t> bytes) { return {bytes.begin(), bytes.end()}; }

// The share of test images that are nearest to the mean training image of their class.
double nearest_mean_accuracy(const Dataset& data) {
  const std::size_t pixels = data.shape.pixels(), classes = static_cast<std::size_t>(data.classes);
  std::vector<double> means(classes * pixels), counts(classes);
  for (std::size_t i = 0; i < data.train.size(); ++i) {
    const std::size_t label = data.train.labels[i];
    ++counts[label];
    for (std::size_t p = 0; p < pixels; ++p) means[label * pixels + p] += data.train.images[i * pixels + p];
  }
  for (std::size_t i = 0; i < means.size(); ++i) means[i] /= counts[i / pixels];
  std::size_t right = 0;
  for (std::size_t i = 0; i < data.test.size(); ++i) {
    double nearest = std::numeric_limits<double>::infinity();
    std::size_t best = 0;
    for (std::size_t c = 0; c < classes; ++c) {
      double distance = 0;
      for (std::size_t p = 0; p < pixels; ++p) {
        const double d = data.test.images[i * pixels + p] - means[c * pixels + p];
        distance += d * d;
      }
      if (distance < nearest) nearest = distance, best = c;
    }
    right += best == data.test.labels[i];
  }
  return static_cast<double>(right) / static_cast<double>(data.test.size());
}

TEST(Synthetic, AnImageTellsItsClass) {
  for (const SyntheticOptions& options :
       {SyntheticOptions{.train = 1200},
        SyntheticOptions{.train = 600, .shape = {3, 16, 12}, .classes = 4}}) {
    EXPECT_GT(nearest_mean_accuracy(make_synthetic(options, 1)), 0.8);
  }
}

TEST(Synthetic, TheSeedDecidesEveryByte) {
  const SyntheticOptions options{.train = 60, .shape = {3, 8, 9}, .classes = 5};
  const Dataset once = make_synthetic(options, 1), again = make_synthetic(options, 1),
                other = make_synthetic(options, 2);
  EXPECT_EQ(copy(once.train.images), copy(again.train.images));
  EXPECT_EQ(copy(once.test.images), copy(again.test.images));
  EXPECT_EQ(copy(once.train.labels), copy(again.train.labels));
  EXPECT_NE(copy(once.train.images), copy(other.train.images));
  EXPECT_NE(copy(once.train.images.first(10 * 216)), copy(once.test.images));  // not the same images
}

TEST(Synthetic, HasEveryClassAndTheSizesAskedFor) {
  auto options = parse_synthetic(":300x3x10x12:7");
  ASSERT_TRUE(options);
  const Dataset data = make_synthetic(*options, 0);
  EXPECT_EQ(data.shape, (ImageShape{3, 10, 12}));
  EXPECT_EQ(data.classes, 7);
  EXPECT_EQ(data.train.size(), 300u);
  EXPECT_EQ(data.test.size(), 50u);
  EXPECT_EQ(data.train.images.size(), 300u * 360);
  EXPECT_EQ(*std::max_element(data.train.labels.begin(), data.train.labels.end()), 6);
  EXPECT_EQ(data.mean.size(), 3u);
}

TEST(Synthetic, UnderstandsWhatFollowsTheWord) {
  EXPECT_EQ(parse_synthetic("")->train, 12000u);
  EXPECT_EQ(parse_synthetic(":500")->train, 500u);
  EXPECT_EQ(parse_synthetic(":500:3")->classes, 3);
  for (const char* text :
       {"x", ":", ":x", ":5x", ":20x1x2", ":20x1x2x2x2", ":20:", ":20:2:2", ":-20", ":20:1", ":20:257",
        ":5:10", ":0", ":20x0x2x2", ":20x1x9000x1", ":99999999999999999999", ":4000000x3x1000x1000"}) {
    auto wrong = parse_synthetic(text);
    ASSERT_FALSE(wrong) << text;
    EXPECT_THAT(wrong.error().text, testing::HasSubstr("'synthetic" + std::string(text) + "'"));
    EXPECT_EQ(wrong.error().code, Errc::usage);
  }
}

}  // namespace
}  // namespace trainer
