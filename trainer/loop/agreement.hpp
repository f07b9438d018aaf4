// What every rank must have been told alike, so that the ranks can compare it before they train. Pure.
#pragma once

#include <string>
#include <vector>

#include "trainer/data/dataset.hpp"
#include "trainer/loop/options.hpp"

namespace trainer {

// A line per flag, as "--lr 0.050000", in a fixed order; for --data what was found there.
std::vector<std::string> flags_that_must_agree(const Options& options, const Dataset& data);

}  // namespace trainer
