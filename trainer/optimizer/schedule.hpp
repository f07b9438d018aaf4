// The learning rate at each step, as a pure function.
#pragma once

#include <cstdint>
#include <string>

namespace trainer {

struct Schedule {
  std::string name = "constant";  // "step", "cosine", "linear"
  double rate = 0.01;
  std::int64_t warmup = 0;      // steps: the rate rises linearly, step 0 has rate/warmup
  std::int64_t total = 0;       // steps of the run, for cosine and linear: they reach 0 at its end
  std::int64_t step_every = 0;  // steps, for "step": the rate is multiplied by gamma after each so many
  double gamma = 0.1;

  double at(std::int64_t step) const;  // step: from 0
};

}  // namespace trainer
