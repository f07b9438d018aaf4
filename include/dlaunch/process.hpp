// Starting one process and seeing it end. The only file that knows Boost.Process (its .cpp): a child
// starts clean (own session, parent-death signal, the signal mask and dispositions with which
// dlaunch itself was started, nothing open but 0, 1, 2), and its end is read raw through a pidfd.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "dlaunch/environment.hpp"
#include "dlaunch/exit_status.hpp"
#include "dlaunch/result.hpp"

namespace dlaunch {

struct SignalState;

struct SpawnRequest {
  std::vector<std::string> arguments;  // argv; argv[0] is looked up in `path` if it has no slash
  Environment environment;             // the child's whole environment
  int in = -1, out = -1, err = -1;     // descriptors for 0, 1, 2; -1: inherit
};

struct Child {
  pid_t pid = -1;
  int pidfd = -1;  // owned by the receiver; -1 where the kernel has none (then wait by SIGCHLD)
};

// The child is its own session and dies with the calling thread. Errors: not_found and
// not_executable for a program that cannot be run, failed for the system's refusals.
Result<Child> spawn(const SpawnRequest& request, const SignalState& at_start);

// A file that exec would be asked to run, or why not: not_found, not_executable.
Result<std::string> find_executable(const std::string& name, const Environment& environment);

// Reaps `pid` if it has ended. Never blocks.
std::optional<ExitStatus> reap(pid_t pid);

}  // namespace dlaunch
