#include "dlaunch/signals.hpp"

#include <pthread.h>

namespace dlaunch {

SignalState SignalState::of_this_process() {
  SignalState state;
  ::pthread_sigmask(SIG_SETMASK, nullptr, &state.mask);
  for (int signal = 1; signal <= 64; ++signal) {
    struct sigaction action {};
    if (::sigaction(signal, nullptr, &action) == 0) state.ignored[signal] = action.sa_handler == SIG_IGN;
  }
  return state;
}

// Handlers fall to the default by exec itself, so only what was ignored at start, and what dlaunch ignores
// itself, need a word.
void SignalState::restore() const {
  for (int signal = 1; signal <= 64; ++signal) {
    if (!ignored[signal] && signal != SIGPIPE && signal != SIGXFSZ) continue;
    struct sigaction action {};
    action.sa_handler = ignored[signal] ? SIG_IGN : SIG_DFL;
    ::sigaction(signal, &action, nullptr);
  }
  ::sigprocmask(SIG_SETMASK, &mask, nullptr);
}

}  // namespace dlaunch
