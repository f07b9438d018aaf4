// `train --compare`: the same number of steps with one process for all devices (dp) and with one process per
// device (ddp), images per second and memory of each device side by side.
#pragma once

#include "trainer/data/dataset.hpp"
#include "trainer/loop/options.hpp"
#include "trainer/loop/session.hpp"

namespace trainer {

// In a group with one rank per device: all ranks train as ddp, then rank 0 alone as dp.
Result<> compare(const Options& options, Session& session, const Dataset& data);

// Alone: becomes a dlaunch that starts a rank for each device with this command line. Returns only if it
// cannot.
Result<> compare_under_launcher(const Options& options);

}  // namespace trainer
