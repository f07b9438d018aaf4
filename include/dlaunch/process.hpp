// Starting one process and seeing it end. A child starts clean: own session, parent-death signal, the
// signal mask and dispositions with which dlaunch itself was started, nothing open but 0, 1, 2. Its end
// is read raw through a pidfd: Boost.Process 1.81, which is known to process.cpp alone, merges exit
// codes with signals, leaks descriptors and leaves zombies.
#pragma once

#include <sys/resource.h>
#include <sys/types.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "dlaunch/environment.hpp"
#include "dlaunch/exit_status.hpp"
#include "dlaunch/result.hpp"
#include "dlaunch/signals.hpp"

namespace dlaunch {

struct SpawnRequest {
  std::vector<std::string> arguments;  // argv; argv[0] without a slash is looked up in PATH
  Environment environment;             // the child's whole environment
  int in = -1, out = -1, err = -1;     // descriptors for 0, 1, 2; -1: inherit
};

struct Child {
  pid_t pid = -1;
  int pidfd = -1;  // owned by the receiver; -1 where the kernel has none (then wait by SIGCHLD)
};

// A child that is on its way to exec.
struct Launch {
  std::string name;  // argv[0], for messages
  pid_t pid = -1;
  int failure = -1;  // read end of a pipe: errno if exec failed, end of file if it did not
};

// Starts children from one thread: the parent-death signal is tied to the thread that forks. Raises our own
// limit on open files; children get the one that was there before.
class Spawner {
 public:
  explicit Spawner(const SignalState& at_start);  // borrowed: outlives the spawner
  ~Spawner();

  // Errors: not_found and not_executable for a program that cannot be run, failed for the rest.
  Result<Child> spawn(const SpawnRequest& request);

  // The two halves of spawn, so that many children can go through exec side by side. Every launch must be
  // confirmed, once; that waits until its exec has succeeded or failed.
  Result<Launch> begin(const SpawnRequest& request);
  Result<Child> confirm(const Launch& launch);

 private:
  struct Context;  // Boost.Process wants an execution context of its own to tell about forks
  const SignalState& at_start_;
  rlimit open_files_{};
  std::unique_ptr<Context> context_;
};

// The file that exec would be asked to run, looked up in the PATH of `environment`.
// Errors: not_found, not_executable, each naming `name` in quotes.
Result<std::string> find_executable(const std::string& name, const Environment& environment);

// Reaps `pid` if it has ended; never blocks.
std::optional<ExitStatus> reap(pid_t pid);

}  // namespace dlaunch
