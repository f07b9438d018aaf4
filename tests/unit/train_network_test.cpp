#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "trainer/device/cpu/cpu_device.hpp"
#include "trainer/model/network.hpp"

namespace trainer {
namespace {

using Floats = std::vector<float>;

std::unique_ptr<Device> cpu() { return make_cpu_device(0, plain_gemm, "plain"); }

// A network with a batch of its own, and everything that a step needs.
struct Training {
  Training(const std::string& name, ImageShape shape, int classes, const std::vector<int>& hidden, int batch,
           int largest_batch)
      : spec(*make_model(name, shape, classes, hidden)),
        network(*Network::create(*device, spec, largest_batch)),
        images(std::size_t(batch) * shape.pixels()),
        labels(std::size_t(batch)),
        logits_gradient(std::size_t(batch) * std::size_t(classes)),
        gradients(spec.parameter_count) {
    const Floats first = initial_parameters(spec, 5);
    std::copy(first.begin(), first.end(), network.parameters());
    std::mt19937 generator(3);
    std::uniform_real_distribution<float> uniform(-1, 1);
    for (float& value : images) value = uniform(generator);
    for (auto& label : labels) label = std::int32_t(generator() % unsigned(classes));
  }

  // The mean loss, in double over the images.
  double loss() {
    Tally tally;
    device->evaluate(&tally, network.forward(images.data(), batch()), labels.data(), labels.size(),
                     spec.classes);
    return tally.loss / double(labels.size());
  }
  void backward(bool accumulate, const Network::Ready& ready = nullptr) {
    float loss = 0;
    const float* logits = network.forward(images.data(), batch());
    device->cross_entropy(logits_gradient.data(), &loss, logits, labels.data(), labels.size(), spec.classes,
                          1.0f / float(labels.size()));
    network.backward(logits_gradient.data(), gradients.data(), accumulate, ready);
  }
  int batch() const { return int(labels.size()); }

  std::unique_ptr<Device> device = cpu();
  ModelSpec spec;
  Network network;
  Floats images;
  std::vector<std::int32_t> labels;
  Floats logits_gradient;
  Floats gradients;
};

// How the loss changes along a direction, against what the gradients say. Along the gradient itself, where
// the change is largest, and along random directions; parameter by parameter.
void expect_gradients_match_differences(Training& training) {
  training.backward(/*accumulate=*/false);
  std::mt19937 generator(11);
  std::normal_distribution<float> normal;
  for (const Parameter& parameter : training.spec.parameters) {
    float* at = training.network.parameters() + parameter.offset;
    const float* gradient = training.gradients.data() + parameter.offset;
    double gradient_norm = 0;
    for (std::size_t i = 0; i < parameter.count; ++i)
      gradient_norm += double(gradient[i]) * double(gradient[i]);
    gradient_norm = std::sqrt(gradient_norm);
    ASSERT_GT(gradient_norm, 1e-4) << parameter.name;
    const Floats before(at, at + parameter.count);
    for (int trial = 0; trial < 4; ++trial) {
      Floats direction(parameter.count);
      double norm = 0, expected = 0;
      for (std::size_t i = 0; i < parameter.count; ++i) {
        direction[i] = trial == 0 ? gradient[i] : normal(generator);
        norm += double(direction[i]) * double(direction[i]);
      }
      norm = std::sqrt(norm);
      for (std::size_t i = 0; i < parameter.count; ++i) {
        direction[i] = float(double(direction[i]) / norm);
        expected += double(direction[i]) * double(gradient[i]);
      }
      const float far = 4e-3f;
      const auto loss_at = [&](float way) {
        for (std::size_t i = 0; i < parameter.count; ++i) at[i] = before[i] + way * direction[i];
        return training.loss();
      };
      const double measured = (loss_at(far) - loss_at(-far)) / (2 * double(far));
      EXPECT_NEAR(measured, expected, 0.01 * gradient_norm + 1e-4)
          << parameter.name << ", direction " << trial;
    }
    std::copy(before.begin(), before.end(), at);
  }
}

TEST(Network, HasTheGradientsThatFiniteDifferencesShow) {
  Training softmax("softmax", {.channels = 2, .height = 3, .width = 5}, 4, {}, 6, 6);
  expect_gradients_match_differences(softmax);
  Training mlp("mlp", {.channels = 1, .height = 4, .width = 5}, 3, {17, 9}, 8, 8);
  expect_gradients_match_differences(mlp);
  Training cnn("cnn", {.channels = 2, .height = 17, .width = 20}, 5, {}, 5, 7);
  expect_gradients_match_differences(cnn);
}

TEST(Network, AddsToTheGradientsIfTold) {
  for (const char* name : {"mlp", "cnn"}) {
    Training training(name, {.channels = 1, .height = 16, .width = 16}, 4, {8}, 5, 5);
    training.backward(/*accumulate=*/false);
    const Floats once = training.gradients;
    training.backward(/*accumulate=*/true);
    for (std::size_t i = 0; i < once.size(); ++i) {
      ASSERT_NEAR(training.gradients[i], 2 * once[i], 1e-6 + 1e-4 * std::abs(double(once[i])));
    }
    training.backward(/*accumulate=*/false);
    EXPECT_EQ(training.gradients, once);
  }
}

TEST(Network, SaysWhichGradientsAreReadyLayerByLayer) {
  Training training("cnn", {}, 10, {}, 2, 2);
  std::vector<std::string> names;
  std::vector<std::size_t> offsets;
  training.backward(false, [&](std::size_t offset) {
    offsets.push_back(offset);
    for (const Parameter& parameter : training.spec.parameters) {
      if (parameter.offset == offset) names.push_back(parameter.name);
    }
  });
  EXPECT_EQ(names, (std::vector<std::string>{"fc2.weight", "fc1.weight", "conv2.weight", "conv1.weight"}));
  EXPECT_EQ(offsets.back(), 0u);
}

TEST(Network, LeavesReadyGradientsAlone) {
  Training training("cnn", {}, 10, {}, 5, 5);
  std::vector<std::pair<std::size_t, Floats>> then;
  training.backward(false, [&](std::size_t offset) {
    then.emplace_back(offset,
                      Floats(training.gradients.begin() + std::ptrdiff_t(offset), training.gradients.end()));
  });
  for (const auto& [offset, values] : then) {
    EXPECT_TRUE(
        std::equal(values.begin(), values.end(), training.gradients.begin() + std::ptrdiff_t(offset)));
  }
}

// Ranks with different room must agree about the same batch.
TEST(Network, GivesTheSameBitsWhateverTheLargestBatch) {
  for (const char* name : {"mlp", "cnn"}) {
    Training tight(name, {}, 10, {32}, 5, 5), roomy(name, {}, 10, {32}, 5, 100);
    tight.backward(false);
    roomy.backward(false);
    EXPECT_EQ(tight.gradients, roomy.gradients);
    EXPECT_EQ(tight.loss(), roomy.loss());
  }
}

TEST(Network, GivesEachImageItsLogitsWhateverComesWithIt) {
  Training training("cnn", {.channels = 3, .height = 20, .width = 17}, 10, {}, 7, 7);
  const std::size_t pixels = training.spec.input.pixels();
  const float* all = training.network.forward(training.images.data(), 7);
  const Floats together(all, all + 70);
  for (int image = 0; image < 7; ++image) {
    const float* one = training.network.forward(training.images.data() + std::size_t(image) * pixels, 1);
    for (int c = 0; c < 10; ++c) EXPECT_NEAR(one[c], together[std::size_t(image * 10 + c)], 1e-5);
  }
}

TEST(Network, GoesBackTwiceFromOneForward) {
  for (const char* name : {"mlp", "cnn"}) {
    Training training(name, {}, 10, {16}, 2, 2);
    training.backward(false);
    const Floats once = training.gradients;
    training.network.backward(training.logits_gradient.data(), training.gradients.data(), false);
    EXPECT_EQ(training.gradients, once);
  }
}

TEST(Network, CanBeMoved) {
  Training training("mlp", {}, 10, {16}, 3, 3);
  const double loss = training.loss();
  Network moved = std::move(training.network);
  training.network = std::move(moved);
  EXPECT_EQ(training.loss(), loss);
}

TEST(Network, RefusesLayersThatDoNotFollowEachOther) {
  auto device = cpu();
  ModelSpec spec = *make_model("mlp", {}, 10, {16});
  std::get<Dense>(spec.layers[1]).in = 17;
  const auto network = Network::create(*device, spec, 4);
  ASSERT_FALSE(network);
  EXPECT_EQ(network.error().text, "the layers of the model 'mlp' do not follow each other");
}

TEST(Network, TellsWhenThereIsNoRoomForIt) {
  auto device = cpu();
  const ModelSpec spec = *make_model("mlp", {.channels = 1, .height = 1, .width = 1}, 2, {1 << 19});
  const auto network = Network::create(*device, spec, 1 << 30);
  ASSERT_FALSE(network);
  EXPECT_EQ(network.error().text.substr(0, 19), "cpu:0: no room for ");
  EXPECT_EQ(device->memory_use().now, 0u);
}

TEST(InitialParameters, DependOnTheSeedsLow32Bits) {
  const ModelSpec spec = *make_model("softmax", {}, 10, {});
  EXPECT_EQ(initial_parameters(spec, 7), initial_parameters(spec, 7));
  EXPECT_NE(initial_parameters(spec, 7), initial_parameters(spec, 8));
  EXPECT_EQ(initial_parameters(spec, 7), initial_parameters(spec, 7 + (std::uint64_t(1) << 32)));
}

}  // namespace
}  // namespace trainer
