// Signal masks and dispositions as dlaunch was started with: what nohup ignored stays ignored, in
// dlaunch and in its workers.
#pragma once

#include <signal.h>

#include <array>

namespace dlaunch {

struct SignalState {
  sigset_t mask{};
  std::array<bool, 65> ignored{};  // index: signal number

  static SignalState of_this_process();
  bool is_ignored(int signal) const { return signal > 0 && signal <= 64 && ignored[signal]; }
  // System calls only: for use between fork and exec.
  void restore() const;
};

}  // namespace dlaunch
