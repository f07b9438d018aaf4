// What a network is made of, as plain data: its layers in order and where each parameter lies in the one flat
// buffer that holds them all. Names and shapes are those of PyTorch's state_dict, so that weights can go
// there and come back. Pure; network.hpp computes with it.
#pragma once

#include <cstddef>
#include <string>
#include <variant>
#include <vector>

#include "dlaunch/result.hpp"

namespace trainer {

using dlaunch::Errc;
using dlaunch::Error;
using dlaunch::Result;

struct ImageShape {
  int channels = 1;
  int height = 28;
  int width = 28;
  std::size_t pixels() const { return std::size_t(channels) * height * width; }
  bool operator==(const ImageShape&) const = default;
};

struct Dense {  // rows in, rows out
  int in = 0;
  int out = 0;
  bool relu = false;
  std::size_t weight = 0;  // index into ModelSpec::parameters; [out][in]
  std::size_t bias = 0;
};

struct Convolution {  // planes in, planes out; stride 1, no border
  int in_channels = 0;
  int out_channels = 0;
  int kernel = 0;
  int height = 0;  // of the input
  int width = 0;
  bool relu = false;
  std::size_t weight = 0;  // [out][in][kernel][kernel]
  std::size_t bias = 0;
};

struct MaxPool {  // 2 x 2, planes in, planes out
  int channels = 0;
  int height = 0;  // of the input
  int width = 0;
};

using Layer = std::variant<Dense, Convolution, MaxPool>;

struct Parameter {
  std::string name;  // "fc1.weight"
  std::vector<int> shape;
  std::size_t offset = 0;  // floats from the start of the flat buffer
  std::size_t count = 0;
  bool bias = false;  // no weight decay
  int fan_in = 0;     // inputs of one output, for the first values
};

struct ModelSpec {
  std::string name;  // "softmax", "mlp", "cnn"
  ImageShape input;
  int classes = 0;
  std::vector<Layer> layers;          // as they are applied
  std::vector<Parameter> parameters;  // in the order of PyTorch's state_dict; offsets rise
  std::size_t parameter_count = 0;    // floats of the flat buffer

  // "fc1.weight 512x784, …" and the sizes: two specs with the same text can exchange parameters.
  std::string fingerprint() const;
};

// `hidden` counts for the mlp alone. An image too small for the cnn is Errc::usage.
Result<ModelSpec> make_model(const std::string& name, ImageShape input, int classes,
                             const std::vector<int>& hidden);

}  // namespace trainer
