#include <gtest/gtest.h>

#include "trainer/model/spec.hpp"

namespace trainer {
namespace {

void expect_refused(Result<ModelSpec> model, const std::string& text) {
  ASSERT_FALSE(model);
  EXPECT_EQ(model.error().code, Errc::usage);
  EXPECT_EQ(model.error().text, text);
}

TEST(ModelSpec, HasTheNamesAndShapesOfPyTorchsStateDict) {
  EXPECT_EQ(make_model("softmax", {}, 10, {})->fingerprint(), "fc1.weight 10x784, fc1.bias 10");
  EXPECT_EQ(
      make_model("mlp", {}, 10, {512, 100})->fingerprint(),
      "fc1.weight 512x784, fc1.bias 512, fc2.weight 100x512, fc2.bias 100, fc3.weight 10x100, fc3.bias 10");
  EXPECT_EQ(make_model("cnn", {}, 10, {})->fingerprint(),
            "conv1.weight 20x1x5x5, conv1.bias 20, conv2.weight 50x20x5x5, conv2.bias 50, "
            "fc1.weight 500x800, fc1.bias 500, fc2.weight 10x500, fc2.bias 10");
}

TEST(ModelSpec, LaysTheParametersOutWithoutGaps) {
  for (const char* name : {"softmax", "mlp", "cnn"}) {
    const auto spec = make_model(name, {.channels = 3, .height = 32, .width = 32}, 7, {64});
    ASSERT_TRUE(spec);
    std::size_t offset = 0;
    for (const Parameter& parameter : spec->parameters) {
      EXPECT_EQ(parameter.offset, offset);
      std::size_t count = 1;
      for (int size : parameter.shape) count *= std::size_t(size);
      EXPECT_EQ(parameter.count, count);
      EXPECT_EQ(parameter.bias, parameter.name.ends_with(".bias"));
      offset += count;
    }
    EXPECT_EQ(spec->parameter_count, offset);
  }
}

TEST(ModelSpec, FitsTheCnnToTheImages) {
  EXPECT_EQ(make_model("cnn", {.channels = 3, .height = 32, .width = 32}, 10, {})->parameters[4].shape,
            (std::vector<int>{500, 50 * 5 * 5}));
  EXPECT_EQ(make_model("cnn", {.channels = 1, .height = 16, .width = 19}, 10, {})->parameters[4].shape,
            (std::vector<int>{500, 50}));
  const auto small = make_model("cnn", {.channels = 1, .height = 15, .width = 28}, 10, {});
  expect_refused(small, "the cnn needs images of at least 16x16, these are 15x28");
  EXPECT_EQ(small.error().hint, "take the mlp for small images");
}

TEST(ModelSpec, NamesWhatCannotBe) {
  expect_refused(make_model("resnet", {}, 10, {}), "there is no model 'resnet'");
  expect_refused(make_model("mlp", {}, 10, {}), "the mlp needs at least one hidden layer");
  expect_refused(make_model("mlp", {}, 10, {512, 0}), "a hidden layer cannot have the size 0");
  expect_refused(make_model("mlp", {}, 0, {512}), "a model needs at least 1 class, got 0");
  expect_refused(make_model("mlp", {.channels = 1, .height = 0, .width = 28}, 10, {512}),
                 "images of 1x0x28 cannot be a model's input");
  expect_refused(make_model("mlp", {.channels = 3, .height = 1 << 20, .width = 1 << 20}, 10, {512}),
                 "images of 3x1048576x1048576 cannot be a model's input");
  expect_refused(make_model("mlp", {}, 10, {60000000, 60000000}),
                 "the mlp would have 3600047760000010 parameters, 1073741824 are the most");
}

}  // namespace
}  // namespace trainer
