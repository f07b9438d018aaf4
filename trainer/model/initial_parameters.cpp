#include <cmath>
#include <random>

#include "trainer/model/network.hpp"

namespace trainer {
namespace {

// As torch.nn.init computes it, so that the last bit is the same: kaiming_uniform_ with a = sqrt(5) for
// weights, the plain formula for biases.
float bound_of(const Parameter& parameter) {
  const double root = std::sqrt(double(parameter.fan_in));
  if (parameter.bias) return float(1 / root);
  const double a = std::sqrt(5.0);
  const double gain = std::sqrt(2.0 / (1 + a * a));
  return float(std::sqrt(3.0) * (gain / root));
}

}  // namespace

std::vector<float> initial_parameters(const ModelSpec& spec, std::uint64_t seed) {
  std::mt19937 generator(static_cast<std::uint32_t>(seed));  // PyTorch's takes the low 32 bits, too
  std::vector<float> values(spec.parameter_count);
  for (const Parameter& parameter : spec.parameters) {
    const float bound = bound_of(parameter);
    for (std::size_t i = 0; i < parameter.count; ++i) {
      constexpr float kUnit = 1.0f / (1 << 24);
      const float uniform = float(generator() & ((1 << 24) - 1)) * kUnit;
      // Rounded once, as PyTorch's kernels for every processor of the last ten years do.
      values[parameter.offset + i] = std::fma(uniform, bound - -bound, -bound);
    }
  }
  return values;
}

}  // namespace trainer
