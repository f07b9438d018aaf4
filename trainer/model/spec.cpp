#include "trainer/model/spec.hpp"

#include <cstdint>

namespace trainer {
namespace {

// Offsets are ints on a GPU's and a BLAS's side.
constexpr std::size_t kMostParameters = std::size_t(1) << 30;
constexpr int kKernel = 5;

std::string dimensions(const std::vector<int>& shape) {
  std::string text;
  for (int size : shape) text += (text.empty() ? "" : "x") + std::to_string(size);
  return text;
}

class Builder {
 public:
  explicit Builder(ModelSpec& spec) : spec_(spec) {}

  void dense(const std::string& name, int in, int out, bool relu) {
    Dense layer{.in = in, .out = out, .relu = relu};
    add(name, layer, {out, in}, in);
  }
  void convolution(const std::string& name, int in_channels, int out_channels, int height, int width) {
    Convolution layer{.in_channels = in_channels,
                      .out_channels = out_channels,
                      .kernel = kKernel,
                      .height = height,
                      .width = width,
                      .relu = true};
    add(name, layer, {out_channels, in_channels, kKernel, kKernel}, in_channels * kKernel * kKernel);
  }
  void pool(int channels, int height, int width) {
    spec_.layers.emplace_back(MaxPool{.channels = channels, .height = height, .width = width});
  }

 private:
  template <class L>
  void add(const std::string& name, L layer, const std::vector<int>& shape, int fan_in) {
    layer.weight = parameter(name + ".weight", shape, fan_in, /*bias=*/false);
    layer.bias = parameter(name + ".bias", {shape[0]}, fan_in, /*bias=*/true);
    spec_.layers.emplace_back(layer);
  }
  std::size_t parameter(std::string name, const std::vector<int>& shape, int fan_in, bool bias) {
    std::size_t count = 1;
    for (int size : shape) count *= std::size_t(size);
    spec_.parameters.push_back({std::move(name), shape, spec_.parameter_count, count, bias, fan_in});
    spec_.parameter_count += count;
    return spec_.parameters.size() - 1;
  }

  ModelSpec& spec_;
};

// The network of PyTorch's first MNIST example: two convolutions with pooling, 500 hidden units.
Result<> add_cnn(ModelSpec& spec) {
  const ImageShape& input = spec.input;
  constexpr int kSmallest = 16;  // leaves one pixel after both convolutions and poolings
  if (input.height < kSmallest || input.width < kSmallest) {
    return Error{Errc::usage,
                 "the cnn needs images of at least 16x16, these are " + std::to_string(input.height) + "x" +
                     std::to_string(input.width),
                 "take the mlp for small images"};
  }
  Builder add(spec);
  int height = input.height, width = input.width, channels = input.channels;
  int number = 0;
  for (int out : {20, 50}) {
    add.convolution("conv" + std::to_string(++number), channels, out, height, width);
    height -= kKernel - 1;
    width -= kKernel - 1;
    add.pool(out, height, width);
    height /= 2;
    width /= 2;
    channels = out;
  }
  add.dense("fc1", channels * height * width, 500, /*relu=*/true);
  add.dense("fc2", 500, spec.classes, /*relu=*/false);
  return {};
}

void add_mlp(ModelSpec& spec, const std::vector<int>& hidden) {
  Builder add(spec);
  int in = int(spec.input.pixels());
  int number = 0;
  for (int size : hidden) {
    add.dense("fc" + std::to_string(++number), in, size, /*relu=*/true);
    in = size;
  }
  add.dense("fc" + std::to_string(++number), in, spec.classes, /*relu=*/false);
}

}  // namespace

std::string ModelSpec::fingerprint() const {
  std::string text;
  for (const Parameter& parameter : parameters) {
    text += (text.empty() ? "" : ", ") + parameter.name + " " + dimensions(parameter.shape);
  }
  return text;
}

Result<ModelSpec> make_model(const std::string& name, ImageShape input, int classes,
                             const std::vector<int>& hidden) {
  constexpr int kMostPixels = 1 << 26;
  if (input.channels < 1 || input.height < 1 || input.width < 1 ||
      std::int64_t(input.height) * input.width > kMostPixels / input.channels) {
    return Error{Errc::usage, "images of " + dimensions({input.channels, input.height, input.width}) +
                                  " cannot be a model's input"};
  }
  if (classes < 1)
    return Error{Errc::usage, "a model needs at least 1 class, got " + std::to_string(classes)};

  ModelSpec spec{.name = name, .input = input, .classes = classes};
  if (name == "softmax") {
    add_mlp(spec, {});
  } else if (name == "mlp") {
    if (hidden.empty()) return Error{Errc::usage, "the mlp needs at least one hidden layer"};
    for (int size : hidden) {
      if (size < 1 || size > kMostPixels) {
        return Error{Errc::usage, "a hidden layer cannot have the size " + std::to_string(size)};
      }
    }
    add_mlp(spec, hidden);
  } else if (name == "cnn") {
    if (auto added = add_cnn(spec); !added) return added.error();
  } else {
    return Error{Errc::usage, "there is no model '" + name + "'", "it is softmax, mlp or cnn"};
  }
  if (spec.parameter_count > kMostParameters) {
    return Error{Errc::usage, "the " + name + " would have " + std::to_string(spec.parameter_count) +
                                  " parameters, " + std::to_string(kMostParameters) + " are the most"};
  }
  return spec;
}

}  // namespace trainer
