#include "trainer/loop/stop_signal.hpp"

#include <csignal>

namespace trainer {
namespace {
volatile std::sig_atomic_t received = 0;
}

void heed_stop_signals() {
  struct sigaction action {};
  action.sa_handler = [](int number) { received = number; };
  action.sa_flags = SA_RESTART;
  ::sigaction(SIGTERM, &action, nullptr);
  ::sigaction(SIGUSR1, &action, nullptr);
}

int stop_signal() { return received; }

}  // namespace trainer
