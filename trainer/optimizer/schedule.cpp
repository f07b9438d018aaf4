#include "trainer/optimizer/schedule.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace trainer {

double Schedule::at(std::int64_t step) const {
  if (step < warmup) return rate * double(step + 1) / double(warmup);
  auto done = step - warmup;
  auto length = std::max<std::int64_t>(total - warmup, 1);
  auto share = std::min(double(done) / double(length), 1.0);
  if (name == "cosine") return rate * (1 + std::cos(std::numbers::pi * share)) / 2;
  if (name == "linear") return rate * (1 - share);
  if (name == "step" && step_every > 0) return rate * std::pow(gamma, double(done / step_every));
  return rate;
}

}  // namespace trainer
