// CUDA_VISIBLE_DEVICES, read as CUDA reads it. Pure text; what devices there are is devices.hpp.
#pragma once

#include <string>
#include <vector>

namespace dlaunch {

// The entries of a CUDA_VISIBLE_DEVICES list that CUDA would show: up to the first that is neither an
// index nor a GPU-… or MIG-… name; none at all if an entry comes twice. Strings are kept.
std::vector<std::string> visible_devices(const std::string& list);

// The entries up to the first negative one, as they are written; for handing them out one by one.
std::vector<std::string> listed_devices(const std::string& list);

}  // namespace dlaunch
