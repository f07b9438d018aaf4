#include <gtest/gtest.h>
#include <zlib.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>
#include <set>

#include "trainer/data/sampler.hpp"

namespace trainer {
namespace {

std::vector<std::vector<std::uint32_t>> lists_of_all_ranks(SamplerOptions options, std::uint64_t epoch) {
  std::vector<std::vector<std::uint32_t>> lists;
  for (options.rank = 0; options.rank < options.ranks; ++options.rank)
    lists.push_back(sample(options, epoch));
  return lists;
}

// What all ranks take together, step by step.
std::vector<std::uint32_t> interleaved(const std::vector<std::vector<std::uint32_t>>& lists) {
  std::vector<std::uint32_t> all;
  for (std::size_t i = 0; i < lists[0].size(); ++i) {
    for (const auto& list : lists) all.push_back(list.at(i));
  }
  return all;
}

std::vector<SamplerOptions> random_options(unsigned count) {
  std::mt19937_64 random(7);
  std::vector<SamplerOptions> cases;
  for (unsigned i = 0; i < count; ++i) {
    SamplerOptions options;
    options.images = 1 + random() % (i % 2 ? 40 : 3000);
    options.ranks = 1 + static_cast<int>(random() % 16);
    options.shuffle = random() & 1;
    options.drop_last = random() & 1;
    options.seed = random();
    cases.push_back(options);
  }
  return cases;
}

TEST(Sampler, GivesTheListsThatPyTorchGave) {
  std::ifstream file(std::string(DLAUNCH_TEST_DATA) + "/sampler_lists.json");
  const auto cases = nlohmann::json::parse(file);
  ASSERT_EQ(cases.size(), 40u);
  for (const auto& one : cases) {
    SamplerOptions options{.images = one["images"], .ranks = one["ranks"], .rank = one["rank"]};
    options.shuffle = one["shuffle"];
    options.seed = one["seed"];
    options.drop_last = one["drop_last"];
    const auto list = sample(options, one["epoch"]);
    ASSERT_EQ(list.size(), one["count"]) << one;
    EXPECT_EQ(samples_per_rank(options), list.size()) << one;
    Bytef bytes[4];
    uLong sum = ::crc32(0, nullptr, 0);
    for (const std::uint32_t index : list) {
      for (int i = 0; i < 4; ++i) bytes[i] = static_cast<Bytef>(index >> 8 * i);
      sum = ::crc32(sum, bytes, 4);
    }
    EXPECT_EQ(sum, one["crc32"]) << one;
    if (list.empty()) continue;
    EXPECT_EQ(list.front(), one["first"]) << one;
    EXPECT_EQ(list.back(), one["last"]) << one;
  }
}

TEST(Sampler, EveryRankGetsAsManyAndTogetherTheyTakeEveryImage) {
  for (const auto& options : random_options(200)) {
    const auto lists = lists_of_all_ranks(options, 3);
    for (const auto& list : lists) ASSERT_EQ(list.size(), samples_per_rank(options));
    const auto all = interleaved(lists);
    const std::set<std::uint32_t> distinct(all.begin(), all.end());
    const auto ranks = static_cast<std::size_t>(options.ranks);
    if (options.drop_last) {
      EXPECT_EQ(all.size(), options.images / ranks * ranks);
      EXPECT_EQ(distinct.size(), all.size());  // nothing twice
    } else {
      EXPECT_EQ(all.size(), (options.images + ranks - 1) / ranks * ranks);
      EXPECT_EQ(distinct.size(), options.images);  // nothing left out
    }
    EXPECT_TRUE(distinct.empty() || *distinct.rbegin() < options.images);
  }
}

TEST(Sampler, RanksTogetherSeeTheOrderOfOne) {
  for (auto options : random_options(100)) {
    const auto together = interleaved(lists_of_all_ranks(options, 5));
    options.ranks = 1;
    const auto alone = sample(options, 5);
    for (std::size_t i = 0; i < together.size(); ++i) ASSERT_EQ(together[i], alone[i % alone.size()]);
  }
}

TEST(Sampler, AnotherEpochIsAnotherShuffleAndTheSameAsThatOfTheNextSeed) {
  SamplerOptions options{.images = 1000, .ranks = 4, .rank = 1, .seed = 11};
  const auto first = sample(options, 0), second = sample(options, 1);
  EXPECT_NE(first, second);
  options.seed = 12;
  EXPECT_EQ(sample(options, 0), second);
}

TEST(Sampler, UnshuffledListsAreTheSameInEveryEpoch) {
  const SamplerOptions options{.images = 10, .ranks = 4, .rank = 1, .shuffle = false};
  EXPECT_EQ(sample(options, 0), (std::vector<std::uint32_t>{1, 5, 9}));
  EXPECT_EQ(sample(options, 9), sample(options, 0));
}

TEST(Sampler, OfNoImagesEveryListIsEmpty) {
  EXPECT_TRUE(sample({.images = 0, .ranks = 3}, 0).empty());
  EXPECT_TRUE(sample({.images = 2, .ranks = 3, .drop_last = true}, 0).empty());
}

TEST(Sampler, SlicesOfIndependentCopiesAreDisjointAndComplete) {
  std::multiset<std::uint32_t> all;
  for (int index = 0; index < 3; ++index) {
    for (const auto image : slice_of(10, index, 3)) {
      EXPECT_EQ(image % 3, static_cast<std::uint32_t>(index));
      all.insert(image);
    }
  }
  EXPECT_EQ(all.size(), 10u);
  EXPECT_EQ(std::set<std::uint32_t>(all.begin(), all.end()).size(), 10u);
}

}  // namespace
}  // namespace trainer
