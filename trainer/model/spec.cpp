#include "trainer/model/spec.hpp"

namespace trainer {
namespace {

class Builder {
 public:
  Builder(std::string name, ImageShape input, int classes) {
    spec_.name = std::move(name);
    spec_.input = input;
    spec_.classes = classes;
  }

  void dense(int in, int out, bool relu) {
    auto name = "fc" + std::to_string(++dense_count_);
    auto weight = parameter(name + ".weight", {out, in}, false, in);
    auto bias = parameter(name + ".bias", {out}, true, in);
    spec_.layers.push_back(Dense{in, out, relu, weight, bias});
  }
  // A convolution and the pool behind it.
  void convolution(int channels, int kernel, ImageShape& shape) {
    auto name = "conv" + std::to_string(++convolution_count_);
    auto fan_in = shape.channels * kernel * kernel;
    auto weight = parameter(name + ".weight", {channels, shape.channels, kernel, kernel}, false, fan_in);
    auto bias = parameter(name + ".bias", {channels}, true, fan_in);
    spec_.layers.push_back(
        Convolution{shape.channels, channels, kernel, shape.height, shape.width, true, weight, bias});
    shape = {channels, shape.height - kernel + 1, shape.width - kernel + 1};
    spec_.layers.push_back(MaxPool{channels, shape.height, shape.width});
    shape = {channels, shape.height / 2, shape.width / 2};
  }
  ModelSpec finish() { return std::move(spec_); }

 private:
  std::size_t parameter(std::string name, std::vector<int> shape, bool bias, int fan_in) {
    std::size_t count = 1;
    for (auto size : shape) count *= std::size_t(size);
    spec_.parameters.push_back(
        {std::move(name), std::move(shape), spec_.parameter_count, count, bias, fan_in});
    spec_.parameter_count += count;
    return spec_.parameters.size() - 1;
  }

  ModelSpec spec_;
  int dense_count_ = 0;
  int convolution_count_ = 0;
};

Result<ModelSpec> make_cnn(ImageShape shape, int classes) {
  constexpr int kKernel = 5;
  // Two convolutions, each with a pool behind it, must leave a pixel.
  constexpr int kSmallest = ((1 * 2 + kKernel - 1) * 2) + kKernel - 1;
  if (shape.height < kSmallest || shape.width < kSmallest) {
    return Error{Errc::usage,
                 "--model cnn: images of " + std::to_string(shape.height) + "x" +
                     std::to_string(shape.width) + " are too small, it needs " + std::to_string(kSmallest) +
                     "x" + std::to_string(kSmallest),
                 "use --model mlp"};
  }
  Builder builder("cnn", shape, classes);
  builder.convolution(20, kKernel, shape);
  builder.convolution(50, kKernel, shape);
  builder.dense(int(shape.pixels()), 500, true);
  builder.dense(500, classes, false);
  return builder.finish();
}

}  // namespace

Result<ModelSpec> make_model(const std::string& name, ImageShape input, int classes,
                             const std::vector<int>& hidden) {
  if (name == "cnn") return make_cnn(input, classes);
  Builder builder(name, input, classes);
  auto width = int(input.pixels());
  if (name == "mlp") {
    for (auto next : hidden) {
      builder.dense(width, next, true);
      width = next;
    }
  } else if (name != "softmax") {
    return Error{Errc::usage, "no model '" + name + "'", "softmax, mlp or cnn"};
  }
  builder.dense(width, classes, false);
  return builder.finish();
}

std::string ModelSpec::fingerprint() const {
  std::string text = name;
  for (const auto& parameter : parameters) {
    text += (&parameter == &parameters.front() ? ": " : ", ") + parameter.name + " ";
    for (std::size_t i = 0; i < parameter.shape.size(); ++i) {
      text += (i ? "x" : "") + std::to_string(parameter.shape[i]);
    }
  }
  return text;
}

}  // namespace trainer
