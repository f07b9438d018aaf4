#include "dlaunch/exit_status.hpp"

#include <signal.h>
#include <string.h>

#include <algorithm>
#include <cctype>

namespace dlaunch {

std::string signal_name(int signal) {
  if (signal == SIGIO) return "SIGIO";  // one number with SIGPOLL, which nobody says on Linux
  if (const char* name = sigabbrev_np(signal)) return std::string("SIG") + name;
  return "signal " + std::to_string(signal);
}

int signal_number(const std::string& name) {
  if (!name.empty() && std::all_of(name.begin(), name.end(), ::isdigit)) {
    if (name.size() > 2) return 0;
    int number = std::stoi(name);
    return number <= 64 ? number : 0;
  }
  std::string upper;
  for (char c : name) upper += static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  if (upper.rfind("SIG", 0) == 0) upper.erase(0, 3);
  for (int signal = 1; signal < 32; ++signal) {
    const char* known = sigabbrev_np(signal);
    if (known && upper == known) return signal;
  }
  return 0;
}

std::string describe(const ExitStatus& status) {
  if (status.signal == 0) return "exited with code " + std::to_string(status.code);
  return "was killed by " + signal_name(status.signal) + (status.core ? ", core dumped" : "");
}

}  // namespace dlaunch
