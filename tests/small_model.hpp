// A network of every kind of parameter and a few numbers, for tests of files.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "trainer/model/spec.hpp"

namespace trainer {

inline ModelSpec model_with(std::string name, std::vector<Parameter> parameters) {
  ModelSpec spec{.name = std::move(name), .input = {1, 6, 6}, .classes = 3};
  for (auto& parameter : parameters) {
    parameter.offset = spec.parameter_count;
    parameter.count = 1;
    for (int size : parameter.shape) parameter.count *= static_cast<std::size_t>(size);
    spec.parameter_count += parameter.count;
    spec.parameters.push_back(parameter);
  }
  return spec;
}

inline ModelSpec small_model() {
  return model_with("small", {{.name = "conv1.weight", .shape = {2, 1, 3, 3}},
                              {.name = "conv1.bias", .shape = {2}},
                              {.name = "fc1.weight", .shape = {3, 8}},
                              {.name = "fc1.bias", .shape = {3}}});
}

}  // namespace trainer
