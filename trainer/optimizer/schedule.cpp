#include "trainer/optimizer/schedule.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace trainer {

double Schedule::at(std::int64_t step) const {
  if (step < warmup) return rate * double(step + 1) / double(warmup);
  const std::int64_t done =
      step - std::max<std::int64_t>(warmup, 0);  // the schedule starts after the warm-up
  if (name == "step") {
    const std::int64_t falls = step_every > 0 ? done / step_every : 0;
    return rate * std::pow(gamma, double(falls));
  }
  const std::int64_t length = total - std::max<std::int64_t>(warmup, 0);
  const double progress = done < length ? double(done) / double(length) : 1;
  if (name == "cosine") return rate * (1 + std::cos(std::numbers::pi * progress)) / 2;
  if (name == "linear") return rate * (1 - progress);
  return rate;
}

}  // namespace trainer
