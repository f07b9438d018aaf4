// What becomes of a command line: it is answered here (help, version, explanation, or a message why it
// cannot be used), or it is a job to run. The one function that main calls before anything is started.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "dlaunch/environment.hpp"
#include "dlaunch/settings.hpp"

namespace dlaunch {

struct Invocation {
  std::optional<Settings> settings;  // a job to run; none: everything is said, end with exit_code
  int exit_code = 0;                 // 0 answered, 2 refused, 125 the answer could not be written
};

// Answers go to stdout, refusals and warnings to stderr; sets the log level. Program and worker
// environment are those of `environment`.
Invocation read_invocation(const std::vector<std::string>& argv, const Environment& environment,
                           const Machine& machine);

}  // namespace dlaunch
