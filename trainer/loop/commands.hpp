// What `train` does for each of its commands.
#pragma once

#include "dlaunch/environment.hpp"
#include "trainer/loop/options.hpp"

namespace trainer {

// `rank`: this process's, once it is known in a group of several, for messages.
Result<> run(const Options& options, const dlaunch::Environment& environment, int& rank);

}  // namespace trainer
