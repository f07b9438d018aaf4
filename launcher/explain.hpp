// What --explain prints: every setting with its origin, and what each worker of this node would be
// started with: its argv, and the variables that differ from those dlaunch was started with. Nothing
// is started, no other node is asked: all nodes are taken to be like this one.
#pragma once

#include <string>

#include "dlaunch/environment.hpp"
#include "dlaunch/layout.hpp"
#include "dlaunch/settings.hpp"

namespace dlaunch {

std::string explain(const Settings& settings, const Environment& inherited);

// The same for programs: {"settings": {flag: {"value", "origin"}}, "warnings": […],
// "workers": [{"argv": […], "set": {name: value}, "removed": […]}]}.
std::string explain_json(const Settings& settings, const Environment& inherited);

// The round that is assumed: node_rank 0 if it is yet to be assigned, 29500 for a port yet to be found.
Round assumed_round(const Job& job);

}  // namespace dlaunch
