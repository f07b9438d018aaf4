#include <gmock/gmock.h>

#include <algorithm>
#include <set>

#include "trainer/loop/batch_plan.hpp"

namespace trainer {
namespace {

using testing::HasSubstr;

std::vector<std::vector<std::uint32_t>> global_steps(BatchOptions options, int world, std::size_t images,
                                                     std::int64_t done = 0) {
  std::vector<std::vector<std::uint32_t>> steps;
  for (int rank = 0; rank < world; ++rank) {
    auto plan = plan_batches(options, rank, world);
    EXPECT_TRUE(plan) << plan.error().text;
    auto epoch = plan_epoch(*plan, {.images = images, .seed = 7}, 0, done);
    steps.resize(epoch.steps.size());
    std::size_t batch = 0;
    for (std::size_t step = 0; step < epoch.steps.size(); ++step) {
      for (int pass = 0; pass < epoch.steps[step].passes; ++pass, ++batch) {
        steps[step].insert(steps[step].end(), epoch.batches[batch].begin(), epoch.batches[batch].end());
      }
    }
    EXPECT_EQ(batch, epoch.batches.size());
  }
  for (auto& step : steps) std::sort(step.begin(), step.end());
  return steps;
}

TEST(BatchPlan, TheSameImagesAtEachStepForAnyNumberOfRanks) {
  auto alone = global_steps({.global_batch = 24}, 1, 240);
  for (int world : {2, 3, 4, 8}) EXPECT_EQ(global_steps({.global_batch = 24}, world, 240), alone) << world;
}

TEST(BatchPlan, TheSameImagesAtEachStepHoweverManyPasses) {
  EXPECT_EQ(global_steps({.global_batch = 24, .accumulate = 3}, 2, 240),
            global_steps({.global_batch = 24}, 2, 240));
}

TEST(BatchPlan, ShardsAreTheSameForAnyNumberOfRanks) {
  auto alone = plan_batches({.global_batch = 64, .reduction = Reduction::tree}, 0, 1);
  auto whole = plan_epoch(*alone, {.images = 1000, .seed = 3}, 1, 0);
  for (int world : {2, 4, 8}) {
    std::size_t seen = 0;
    for (int rank = 0; rank < world; ++rank) {
      auto plan = plan_batches({.global_batch = 64, .reduction = Reduction::tree}, rank, world);
      ASSERT_TRUE(plan);
      auto part = plan_epoch(*plan, {.images = 1000, .seed = 3}, 1, 0);
      ASSERT_EQ(part.steps.size(), whole.steps.size());
      auto passes = std::size_t(8 / world);
      for (std::size_t step = 0; step < part.steps.size(); ++step) {
        EXPECT_EQ(part.steps[step].images, whole.steps[step].images);
        for (std::size_t pass = 0; pass < passes; ++pass, ++seen) {
          EXPECT_EQ(part.batches[step * passes + pass],
                    whole.batches[step * 8 + std::size_t(rank) * passes + pass]);
        }
      }
    }
    EXPECT_EQ(seen, whole.batches.size());
  }
}

TEST(BatchPlan, GoesOnWhereAnotherPlanStopped) {
  auto whole = global_steps({.global_batch = 24}, 2, 240);
  auto rest = global_steps({.global_batch = 24}, 3, 240, 24 * 4);
  ASSERT_EQ(rest.size(), whole.size() - 4);
  EXPECT_TRUE(std::equal(rest.begin(), rest.end(), whole.begin() + 4));
}

TEST(BatchPlan, TheLastStepOfAnEpochCountsItsOwnImages) {
  auto plan = plan_batches({.batch_size = 8}, 0, 2);
  auto epoch = plan_epoch(*plan, {.images = 21}, 0, 0);
  ASSERT_EQ(epoch.steps.size(), 2u);
  EXPECT_EQ(epoch.steps[0].images, 16);
  EXPECT_EQ(epoch.steps[1].images, 6);  // 21 images, padded to 22
  EXPECT_EQ(steps_per_epoch(*plan, {.images = 21}), 2);
}

TEST(BatchPlan, WhatDoesNotDivideIsToldWithItsNumbers) {
  auto text = [](const BatchOptions& options, int world) {
    auto plan = plan_batches(options, 0, world);
    return plan ? std::string() : plan.error().text;
  };
  EXPECT_THAT(text({.global_batch = 64}, 3), HasSubstr("--global-batch 64 does not divide by 3"));
  EXPECT_THAT(text({.global_batch = 60, .reduction = Reduction::tree}, 2),
              HasSubstr("60 does not divide by 8"));
  EXPECT_THAT(text({.reduction = Reduction::tree}, 3), HasSubstr("3 ranks cannot share 8 shards"));
  EXPECT_THAT(text({.reduction = Reduction::tree}, 16), HasSubstr("16 ranks"));
  EXPECT_THAT(text({.reduction = Reduction::tree, .shards = 6}, 2), HasSubstr("power of two"));
  EXPECT_THAT(text({.accumulate = 3, .reduction = Reduction::tree}, 1), HasSubstr("--accumulate 3"));
  EXPECT_EQ(text({.global_batch = 64, .accumulate = 2}, 4), "");
}

}  // namespace
}  // namespace trainer
