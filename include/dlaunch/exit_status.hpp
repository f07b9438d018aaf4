// How a process ended, decoded once from the raw wait status: Boost.Process 1.81 merges exit codes
// and signals, so nothing above this file may see a merged number.
#pragma once

#include <string>

namespace dlaunch {

struct ExitStatus {
  int code = 0;       // 0 .. 255, meaningful if signal is 0
  int signal = 0;     // 1 .. 64 if a signal ended the process
  bool core = false;  // a core file was written

  bool ok() const { return code == 0 && signal == 0; }
  // What a shell would put into $?: the code, or 128 + signal.
  int shell_code() const { return signal ? 128 + signal : code; }
  bool operator==(const ExitStatus&) const = default;
};

// "exited with code 3", "was killed by SIGSEGV", with ", core dumped" where one was.
std::string describe(const ExitStatus& status);

// "SIGTERM"; "signal 40" for those without a name.
std::string signal_name(int signal);

// 15 for "SIGTERM", "TERM", "term" or "15"; 0 if there is no such signal.
int signal_number(const std::string& name);

}  // namespace dlaunch
