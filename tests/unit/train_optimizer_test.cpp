#include <gtest/gtest.h>

#include <cmath>

#include "trainer/device/cpu/cpu_device.hpp"
#include "trainer/optimizer/optimizer.hpp"
#include "trainer/optimizer/schedule.hpp"

namespace trainer {
namespace {

using Floats = std::vector<float>;

struct Setting {
  std::unique_ptr<Device> device = make_cpu_device(0, plain_gemm, "plain");
  ModelSpec spec = *make_model("mlp", {.channels = 1, .height = 2, .width = 2}, 2, {3});
};

TEST(Optimizer, DecaysWeightsButNoBiases) {
  for (const char* name : {"sgd", "adamw"}) {
    Setting setting;
    auto optimizer = Optimizer::create(*setting.device, setting.spec, {.name = name, .weight_decay = 0.5f});
    ASSERT_TRUE(optimizer);
    Floats parameters(setting.spec.parameter_count, 1.0f);
    const Floats gradients(parameters.size(), 0.0f);
    optimizer->step(parameters.data(), gradients.data(), 0.1f);
    for (const Parameter& parameter : setting.spec.parameters) {
      for (std::size_t i = 0; i < parameter.count; ++i) {
        EXPECT_FLOAT_EQ(parameters[parameter.offset + i], parameter.bias ? 1.0f : 0.95f) << parameter.name;
      }
    }
  }
}

TEST(Optimizer, GoesOnFromItsSlotsAndCount) {
  for (const char* name : {"sgd", "adamw"}) {
    Setting setting;
    const OptimizerOptions options{.name = name, .momentum = 0.9f, .weight_decay = 0.01f};
    const std::size_t count = setting.spec.parameter_count;
    Floats gradients(count);
    for (std::size_t i = 0; i < count; ++i) gradients[i] = std::sin(float(i));
    auto whole = Optimizer::create(*setting.device, setting.spec, options);
    Floats expected(count, 1.0f);
    for (int i = 0; i < 3; ++i) whole->step(expected.data(), gradients.data(), 0.1f);

    auto before = Optimizer::create(*setting.device, setting.spec, options);
    auto after = Optimizer::create(*setting.device, setting.spec, options);
    Floats parameters(count, 1.0f);
    before->step(parameters.data(), gradients.data(), 0.1f);
    for (std::size_t slot = 0; slot < before->slots().size(); ++slot) {
      EXPECT_EQ(before->slots()[slot].name, after->slots()[slot].name);
      std::copy_n(before->slots()[slot].data, count, after->slots()[slot].data);
    }
    after->set_steps(before->steps());
    for (int i = 0; i < 2; ++i) after->step(parameters.data(), gradients.data(), 0.1f);
    EXPECT_EQ(parameters, expected) << name;
    EXPECT_EQ(after->steps(), 3);
  }
}

TEST(Optimizer, HasPyTorchsNamesForItsSlots) {
  Setting setting;
  const auto names = [&](const OptimizerOptions& options) {
    std::vector<std::string> found;
    const auto optimizer = Optimizer::create(*setting.device, setting.spec, options);
    for (const auto& slot : optimizer->slots()) found.push_back(slot.name);
    return found;
  };
  EXPECT_EQ(names({}), (std::vector<std::string>{}));
  EXPECT_EQ(names({.momentum = 0.5f}), (std::vector<std::string>{"momentum_buffer"}));
  EXPECT_EQ(names({.name = "adamw"}), (std::vector<std::string>{"exp_avg", "exp_avg_sq"}));
}

TEST(Optimizer, NamesTheOneThatThereIsNot) {
  Setting setting;
  const auto optimizer = Optimizer::create(*setting.device, setting.spec, {.name = "adam"});
  ASSERT_FALSE(optimizer);
  EXPECT_EQ(optimizer.error().code, Errc::usage);
  EXPECT_EQ(optimizer.error().text, "there is no optimizer 'adam'");
  EXPECT_EQ(optimizer.error().hint, "it is sgd or adamw");
}

TEST(Schedule, IsConstantByDefault) {
  EXPECT_EQ(Schedule{}.at(0), 0.01);
  EXPECT_EQ(Schedule{}.at(1000000), 0.01);
}

TEST(Schedule, WarmsUpLinearlyAndThenStarts) {
  for (const char* name : {"constant", "step", "cosine", "linear"}) {
    const Schedule schedule{.name = name, .rate = 1, .warmup = 4, .total = 104, .step_every = 10};
    EXPECT_DOUBLE_EQ(schedule.at(0), 0.25);
    EXPECT_DOUBLE_EQ(schedule.at(3), 1);
    EXPECT_DOUBLE_EQ(schedule.at(4), 1);
  }
}

TEST(Schedule, ReachesZeroAtTheEndAndStaysThere) {
  for (const char* name : {"cosine", "linear"}) {
    const Schedule schedule{.name = name, .rate = 1, .warmup = 4, .total = 104};
    EXPECT_NEAR(schedule.at(54), 0.5, 1e-12);
    EXPECT_GT(schedule.at(103), 0);
    EXPECT_EQ(schedule.at(104), 0);
    EXPECT_EQ(schedule.at(1000), 0);
  }
}

TEST(Schedule, FallsInSteps) {
  const Schedule schedule{.name = "step", .rate = 1, .step_every = 10, .gamma = 0.5};
  EXPECT_EQ(schedule.at(9), 1);
  EXPECT_EQ(schedule.at(10), 0.5);
  EXPECT_EQ(schedule.at(29), 0.25);
}

TEST(Schedule, LivesWithARunShorterThanItsWarmup) {
  const Schedule schedule{.name = "cosine", .rate = 1, .warmup = 10, .total = 5};
  EXPECT_DOUBLE_EQ(schedule.at(4), 0.5);
  EXPECT_EQ(schedule.at(10), 0);
}

}  // namespace
}  // namespace trainer
