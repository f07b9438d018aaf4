// The outer process of a dlaunch. It outlives its agent: it is the one that the shell waits for and the
// terminal signals, hands signals on, takes the agent's verdict, and kills what is left. If the agent is
// killed without a verdict, everything below goes with it and the exit code is 125. It works as PID 1.
#pragma once

#include <functional>
#include <set>

#include "dlaunch/signals.hpp"

namespace dlaunch {

// How a dlaunch is to end: by an exit code, or (signal above 0) by that signal's default action.
struct Verdict {
  int exit_code = 125;
  int signal = 0;
};

// Runs `agent` in a child process in a session of its own, with the mask of `at_start`. The agent's
// argument, which it owns, is its end of a SOCK_SEQPACKET pair: it reads one byte per signal that the guard
// was sent, and end of file if the guard is gone. Returns in the guard alone, once no child is left; the
// caller then ends the process by `leave`. Handed on are `stop_signals` (others of them keep their default
// action) and SIGUSR1, SIGUSR2, SIGWINCH, unless they were ignored at start.
Verdict guard(const SignalState& at_start, const std::set<int>& stop_signals,
              const std::function<Verdict(int guard_line)>& agent);

// Ends this process as `verdict` says; with a signal, `$?` in a shell is 128 + n and a loop around us
// ends. PID 1 cannot be killed by its own signal: it exits 128 + n.
[[noreturn]] void leave(const Verdict& verdict);

}  // namespace dlaunch
