#include <gmock/gmock.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "trainer/report/metrics.hpp"

namespace trainer {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

StepTimes step_of(double data, double reduce_exposed, double compute) {
  return {.data = data,
          .upload = 0.001,
          .forward = compute / 4,
          .backward = compute / 2,
          .reduce_busy = 0.02,
          .reduce_exposed = reduce_exposed,
          .update = compute / 4,
          .total = data + 0.001 + reduce_exposed + compute,
          .reduced_bytes = 4'000'000,
          .images = 64};
}

std::string held_back(const StepTimes& times, int world_size = 2, int steps = 10) {
  Metrics metrics(world_size);
  for (int i = 0; i < steps; ++i) metrics.add(times);
  return metrics.held_back_by();
}

TEST(Metrics, ALineTellsTheMeansAndSharesOfItsInterval) {
  Metrics metrics(4);
  metrics.add(step_of(0.1, 0, 0.1));
  metrics.line(1, 0, 3, 0.5);
  metrics.add(step_of(0.02, 0.005, 0.064));
  metrics.add(step_of(0, 0.015, 0.094));
  auto line = metrics.line(3, 1, 1.5, 0.25);
  EXPECT_EQ(line.step, 3);
  EXPECT_EQ(line.epoch, 1);
  EXPECT_DOUBLE_EQ(line.images_per_second, 128 / 0.2);
  EXPECT_DOUBLE_EQ(line.mean.total, 0.1);
  EXPECT_DOUBLE_EQ(line.mean.data, 0.01);
  EXPECT_DOUBLE_EQ(line.mean.upload, 0.001);
  EXPECT_DOUBLE_EQ(line.mean.reduce_exposed, 0.01);
  EXPECT_DOUBLE_EQ(line.mean.forward, 0.158 / 8);
  EXPECT_DOUBLE_EQ(line.mean.backward, 0.158 / 4);
  EXPECT_DOUBLE_EQ(line.mean.update, 0.158 / 8);
  EXPECT_EQ(line.mean.images, 64u);
  EXPECT_EQ(line.mean.reduced_bytes, 4'000'000u);
  EXPECT_NEAR(line.data_wait, 0.1, 1e-12);
  EXPECT_NEAR(line.communication, 0.1, 1e-12);
  EXPECT_NEAR(line.overlap, 1 - 0.02 / 0.04, 1e-12);
  EXPECT_NEAR(line.bus_bytes_per_second, 8e6 / 0.04 * 2 * 3 / 4, 1e-3);
  EXPECT_EQ(metrics.lines().size(), 2u);
}

TEST(Metrics, AnEmptyIntervalDividesNothingByZero) {
  auto parsed = json::parse(Metrics(1).line(0, 0, 0, 0).json());
  EXPECT_EQ(parsed["images_per_s"], 0);
  EXPECT_EQ(parsed["ms"]["total"], 0);
  EXPECT_EQ(parsed["overlap"], 0);
}

TEST(Metrics, AWaitLongerThanTheReductionIsNoNegativeOverlap) {
  Metrics metrics(2);
  metrics.add(step_of(0, 0.03, 0.01));  // of 0.02 s busy: the wait for a peer counts too
  EXPECT_EQ(metrics.line(1, 0, 0, 0).overlap, 0);
}

TEST(Metrics, TheJsonHasTheseKeysInThisOrderOnOneLine) {
  Metrics metrics(2);
  metrics.add(step_of(0.01, 0.01, 0.02));
  auto text = metrics.line(50, 2, 0.123456789012345, 0.05).json();
  EXPECT_THAT(text, Not(HasSubstr("\n")));
  EXPECT_THAT(text,
              StartsWith(R"({"step":50,"epoch":2,"loss":0.123456789012345,"lr":0.05,"images_per_s":1561.0,)"
                         R"("ms":{"data":10.0,"upload":1.0,"forward":5.0,"backward":10.0,"reduce":20.0,)"
                         R"("reduce_exposed":10.0,"update":5.0,"total":41.0},"data_wait":0.244,)"));
  auto parsed = json::parse(text);
  for (auto key : {"communication", "overlap", "bus_gb_per_s"}) EXPECT_TRUE(parsed[key].is_number()) << key;
}

TEST(Metrics, WhatIsNotFiniteBecomesNull) {
  MetricsLine line{.step = 7, .loss = NAN, .rate = INFINITY, .images_per_second = -INFINITY};
  line.mean.total = NAN;
  auto parsed = json::parse(line.json());
  EXPECT_TRUE(parsed["loss"].is_null());
  EXPECT_TRUE(parsed["lr"].is_null());
  EXPECT_TRUE(parsed["images_per_s"].is_null());
  EXPECT_TRUE(parsed["ms"]["total"].is_null());
  EXPECT_EQ(parsed["step"], 7);
}

TEST(Metrics, EachBottleneckIsNamedWithItsFlags) {
  EXPECT_THAT(held_back(step_of(0.06, 0.01, 0.029)),
              AllOf(StartsWith("held back by data: 60 % "), HasSubstr("--workers"), HasSubstr("--prefetch"),
                    HasSubstr("train pack")));
  EXPECT_THAT(held_back(step_of(0.001, 0.04, 0.058)),
              AllOf(StartsWith("held back by communication: 40 % "), HasSubstr("--bucket-mb"),
                    HasSubstr("--accumulate"), HasSubstr("--batch-size"), HasSubstr("interface")));
  EXPECT_THAT(held_back(step_of(0.01, 0.01, 0.079)),
              AllOf(StartsWith("held back by compute: 80 % "), HasSubstr("more ranks"), HasSubstr("GPU"),
                    HasSubstr("--batch-size")));
  EXPECT_THAT(held_back(step_of(0.01, 0, 0.08), 1), HasSubstr("several ranks"));
}

TEST(Metrics, SmallerBucketsAreAdvisedOnlyWhereLittleIsHidden) {
  auto hidden = step_of(0, 0.04, 0.05);
  hidden.reduce_busy = 0.4;
  EXPECT_THAT(held_back(hidden),
              AllOf(StartsWith("held back by communication"), Not(HasSubstr("--bucket-mb"))));
}

TEST(Metrics, TheFirstStepsDoNotCount) {
  Metrics metrics(2);
  for (int i = 0; i < 3; ++i) metrics.add(step_of(9, 0, 0.01));
  EXPECT_THAT(metrics.held_back_by(), StartsWith("held back by data"));  // nothing else to judge by
  for (int i = 0; i < 3; ++i) metrics.add(step_of(0, 0, 0.01));
  EXPECT_THAT(metrics.held_back_by(), StartsWith("held back by compute"));
}

}  // namespace
}  // namespace trainer
