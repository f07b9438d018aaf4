#include <gtest/gtest.h>

#include <cstdint>
#include <set>

#include "trainer/parallel/buckets.hpp"

namespace trainer {
namespace {

// 784x512 + 512, 512x512 + 512, 512x10 + 10
ModelSpec mlp() { return *make_model("mlp", {}, 10, {512, 512}); }
ModelSpec cnn() { return *make_model("cnn", {}, 10, {}); }

std::size_t end_of(const ModelSpec& spec) { return kGradientHead + spec.parameter_count; }

// Starts of parameters in the gradient buffer.
std::set<std::size_t> starts_of(const ModelSpec& spec) {
  std::set<std::size_t> starts;
  for (const Parameter& parameter : spec.parameters) starts.insert(kGradientHead + parameter.offset);
  return starts;
}

TEST(Buckets, CoverTheBufferFromItsEndWithoutGaps) {
  for (const ModelSpec& spec : {mlp(), cnn(), *make_model("softmax", {}, 10, {})}) {
    for (std::size_t bytes : {std::size_t(0), std::size_t(1), std::size_t(4096), std::size_t(1) << 20,
                              std::size_t(25) << 20, SIZE_MAX}) {
      for (std::size_t first : {std::size_t(0), std::size_t(64), std::size_t(1) << 20, SIZE_MAX}) {
        if (bytes == 1 && spec.parameter_count > 10000) continue;  // a bucket for each float
        const auto buckets = plan_buckets(spec, bytes, first);
        ASSERT_FALSE(buckets.empty());
        std::size_t end = end_of(spec);
        for (const Bucket& bucket : buckets) {
          ASSERT_EQ(bucket.end, end);
          ASSERT_LT(bucket.begin, bucket.end);
          end = bucket.begin;
        }
        EXPECT_EQ(end, 0u);
      }
    }
  }
}

TEST(Buckets, AreNoLargerThanAskedBesidesTheHead) {
  const std::size_t bytes = 300000, first = 30000;
  for (const ModelSpec& spec : {mlp(), cnn()}) {
    const auto buckets = plan_buckets(spec, bytes, first);
    ASSERT_GT(buckets.size(), 2u);
    for (std::size_t i = 0; i < buckets.size(); ++i) {
      const std::size_t head = buckets[i].begin == 0 ? kGradientHead : 0;
      EXPECT_LE((buckets[i].end - buckets[i].begin - head) * 4, i == 0 ? first : bytes);
    }
  }
}

TEST(Buckets, EndWhereParametersDoUnlessOneIsTooLarge) {
  const ModelSpec spec = mlp();
  const auto starts = starts_of(spec);
  // The largest parameter fits: no cut.
  for (const Bucket& bucket : plan_buckets(spec, 784 * 512 * 4, 784 * 512 * 4)) {
    EXPECT_TRUE(bucket.begin == 0 || starts.count(bucket.begin)) << bucket.begin;
  }
  // It does not by one float: a cut, within it.
  std::size_t cuts = 0;
  for (const Bucket& bucket : plan_buckets(spec, 784 * 512 * 4 - 4, 784 * 512 * 4 - 4)) {
    if (bucket.begin == 0 || starts.count(bucket.begin)) continue;
    ++cuts;
    EXPECT_LT(bucket.begin, kGradientHead + 784 * 512);
  }
  EXPECT_EQ(cuts, 1u);
}

TEST(Buckets, OfSizeZeroAreTheParameters) {
  const ModelSpec spec = cnn();
  const auto buckets = plan_buckets(spec, 0, 0);
  ASSERT_EQ(buckets.size(), spec.parameters.size());
  EXPECT_EQ(buckets.front(), (Bucket{end_of(spec) - 10, end_of(spec)}));  // fc2.bias
  EXPECT_EQ(buckets.back(), (Bucket{0, kGradientHead + 20 * 25}));        // conv1.weight, with the head
}

TEST(Buckets, OfAnySizeAreOneIfEverythingFits) {
  const ModelSpec spec = mlp();
  EXPECT_EQ(plan_buckets(spec, 1 << 30, 1 << 30), (std::vector<Bucket>{{0, end_of(spec)}}));
  EXPECT_EQ(plan_buckets(spec, SIZE_MAX, SIZE_MAX).size(), 1u);
}

TEST(Buckets, StartWithASmallerOne) {
  const ModelSpec spec = mlp();
  const auto buckets = plan_buckets(spec, 25 << 20, 1 << 20);
  ASSERT_EQ(buckets.size(), 2u);
  // fc3 and fc2.bias fit into 1 MiB beside each other; fc2.weight, of 1 MiB, does not any more.
  EXPECT_EQ(buckets[0], (Bucket{kGradientHead + spec.parameters[3].offset, end_of(spec)}));
}

}  // namespace
}  // namespace trainer
