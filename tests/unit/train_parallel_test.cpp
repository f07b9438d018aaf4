#include <gmock/gmock.h>

#include <atomic>
#include <random>

#include "trainer/device/cpu/cpu_device.hpp"
#include "trainer/parallel/consistency.hpp"
#include "trainer/parallel/crew.hpp"
#include "trainer/parallel/data_parallel.hpp"
#include "trainer/parallel/shard_tree.hpp"

namespace trainer {
namespace {

using testing::ElementsAre;

// Sums that show their order: every addition of floats of such different sizes rounds.
std::vector<std::vector<float>> shards_of(int count, std::size_t size) {
  std::mt19937 random(5);
  std::normal_distribution<float> values(0, 1e4f);
  std::vector<std::vector<float>> shards(std::size_t(count), std::vector<float>(size));
  for (auto& shard : shards) {
    for (auto& value : shard) value = values(random) * values(random);
  }
  return shards;
}

float tree_sum(const std::vector<std::vector<float>>& shards, std::size_t from, std::size_t count,
               std::size_t at) {
  if (count == 1) return shards[from][at];
  return tree_sum(shards, from, count / 2, at) + tree_sum(shards, from + count / 2, count / 2, at);
}

TEST(ShardTree, AddsInTheFixedTreeWhateverTheRanges) {
  auto device = make_cpu_device(0, plain_gemm, "");
  for (int count : {1, 2, 4, 8, 16}) {
    const std::size_t size = 37;
    auto shards = shards_of(count, size);
    std::vector<float> result(size);
    auto tree = ShardTree::create(*device, result.data(), size, count);
    ASSERT_TRUE(tree);
    for (int round = 0; round < 2; ++round) {  // a second step starts clean
      for (int i = 0; i < count; ++i) {
        std::copy(shards[std::size_t(i)].begin(), shards[std::size_t(i)].end(), tree->target(i));
        if (i < count - 1) tree->add(i);
      }
      tree->complete(20, size);
      tree->complete(3, 20);
      tree->complete(0, 3);
      for (std::size_t at = 0; at < size; ++at)
        ASSERT_EQ(result[at], tree_sum(shards, 0, std::size_t(count), at));
    }
  }
}

TEST(ShardTree, TheOrderMatters) {  // the control: adding one after the other gives other bits
  auto shards = shards_of(8, 200);
  int differ = 0;
  for (std::size_t at = 0; at < 200; ++at) {
    float sum = 0;
    for (const auto& shard : shards) sum += shard[at];
    differ += sum != tree_sum(shards, 0, 8, at);
  }
  EXPECT_GT(differ, 20);
}

TEST(OddOnesOut, AreThoseWhoDifferFromTheMost) {
  EXPECT_THAT(odd_ones_out({5, 5, 5}), ElementsAre());
  EXPECT_THAT(odd_ones_out({5, 6, 5}), ElementsAre(1));
  EXPECT_THAT(odd_ones_out({6, 5, 5, 5}), ElementsAre(0));
  EXPECT_THAT(odd_ones_out({5, 6}), ElementsAre(1));  // of two, rank 0 is believed
  EXPECT_THAT(odd_ones_out({1, 2, 2, 3}), ElementsAre(0, 3));
}

TEST(ScatterSizes, AreTorchChunks) {
  EXPECT_THAT(scatter_sizes(10, 4), ElementsAre(3, 3, 3, 1));
  EXPECT_THAT(scatter_sizes(8, 4), ElementsAre(2, 2, 2, 2));
  EXPECT_THAT(scatter_sizes(5, 4), ElementsAre(2, 2, 1, 0));
  EXPECT_THAT(scatter_sizes(1, 3), ElementsAre(1, 0, 0));
}

TEST(Crew, EveryMemberWorksOnceAndAllHaveWhenItReturns) {
  Crew crew(4);
  for (int round = 0; round < 50; ++round) {
    std::vector<int> seen(4, 0);
    crew.run([&](int number) { ++seen[std::size_t(number)]; });
    EXPECT_THAT(seen, ElementsAre(1, 1, 1, 1));
  }
}

class DataParallelTest : public testing::Test {
 protected:
  // Gradients (with the loss in front) of one pass on `parts` devices, the loss on device `output`.
  std::vector<float> gradients(int parts, int output, int batch_size) {
    auto spec = *make_model("mlp", {1, 5, 5}, 3, {7});
    auto home = make_cpu_device(0, plain_gemm, "");
    auto network = Network::create(*home, spec, batch_size);
    auto first = initial_parameters(spec, 3);
    home->upload(network->parameters(), first.data(), first.size() * sizeof(float));
    std::mt19937 random(1);
    std::vector<float> images(std::size_t(batch_size) * 25);
    std::vector<std::int32_t> labels;
    for (auto& value : images) value = std::uniform_real_distribution<float>(-1, 1)(random);
    for (int i = 0; i < batch_size; ++i) labels.push_back(std::int32_t(random() % 3));
    std::vector<float> result(1 + spec.parameter_count, 0.0f);
    std::vector<std::unique_ptr<Device>> others;
    for (int i = 1; i < parts; ++i) others.push_back(make_cpu_device(i, plain_gemm, ""));
    auto parallel = DataParallel::create(*home, *network, std::move(others), output, batch_size);
    EXPECT_TRUE(parallel);
    auto passed = (*parallel)->pass({images.data(), labels.data(), batch_size}, result.data() + 1,
                                    result.data(), 1.0f / float(batch_size), false);
    EXPECT_TRUE(passed);
    return result;
  }
};

TEST_F(DataParallelTest, GivesTheGradientsOfOneDevice) {
  for (int batch : {8, 7, 2, 1}) {
    auto alone = gradients(1, 0, batch);
    for (int parts : {2, 3, 4}) {
      for (int output = 0; output < parts; output += parts - 1) {
        auto several = gradients(parts, output, batch);
        for (std::size_t i = 0; i < alone.size(); ++i)
          ASSERT_NEAR(several[i], alone[i], 1e-5) << parts << " " << batch;
      }
    }
    EXPECT_GT(*std::max_element(alone.begin() + 1, alone.end()), 1e-3);
  }
}

}  // namespace
}  // namespace trainer
