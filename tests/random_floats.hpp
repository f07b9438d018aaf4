// Numbers between -1 and 1 that are the same in every run.
#pragma once

#include <cstddef>
#include <random>
#include <vector>

namespace trainer {

using Floats = std::vector<float>;

inline Floats random_floats(std::size_t count, unsigned seed) {
  std::mt19937 generator(seed);
  std::uniform_real_distribution<float> uniform(-1, 1);
  Floats values(count);
  for (float& value : values) value = uniform(generator);
  return values;
}

}  // namespace trainer
