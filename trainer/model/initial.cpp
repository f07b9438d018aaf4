#include <cmath>
#include <random>

#include "trainer/model/network.hpp"

namespace trainer {

std::vector<float> initial_parameters(const ModelSpec& spec, std::uint64_t seed) {
  std::mt19937 random(static_cast<std::uint32_t>(seed));  // PyTorch's generator takes the low 32 bits, too
  std::vector<float> values(spec.parameter_count);
  for (const auto& parameter : spec.parameters) {
    // A weight's bound is computed in PyTorch as sqrt(3) * gain / sqrt(fan_in), gain = sqrt(2 / (1 + 5)).
    double bound = parameter.bias
                       ? 1 / std::sqrt(double(parameter.fan_in))
                       : std::sqrt(3.0) * (std::sqrt(2.0 / 6.0) / std::sqrt(double(parameter.fan_in)));
    auto from = float(-bound), to = float(bound);
    for (std::size_t i = 0; i < parameter.count; ++i) {
      auto x = float(random() & ((1u << 24) - 1)) * (1.0f / (1u << 24));
      values[parameter.offset + i] = x * (to - from) + from;
    }
  }
  return values;
}

}  // namespace trainer
