// dlaunch: reads what was typed, then splits into guard and agent.
#include <fcntl.h>
#include <malloc.h>

#include <cstdlib>

#include "agent/agent.hpp"
#include "agent/guard.hpp"
#include "agent/log_folder.hpp"
#include "dlaunch/environment.hpp"
#include "dlaunch/kernel.hpp"
#include "dlaunch/log.hpp"
#include "dlaunch/settings.hpp"
#include "dlaunch/signals.hpp"
#include "launcher/invocation.hpp"

using namespace dlaunch;

namespace {

// A descriptor 0, 1 or 2 that was closed would be given to the next file, and then to the workers.
void fill_standard_descriptors() {
  for (int fd = 0; fd <= 2; ++fd) {
    if (::fcntl(fd, F_GETFD) < 0) ::open("/dev/null", fd == 0 ? O_RDONLY : O_WRONLY);
  }
}

}  // namespace

int main(int argc, char** argv) {
  fill_standard_descriptors();
  // One heap for all threads: they allocate little, and a heap each costs memory and start-up time.
  ::mallopt(M_ARENA_MAX, 1);
  const SignalState at_start = SignalState::of_this_process();
  kernel::pretend(std::getenv("DLAUNCH_PRETEND_ENOSYS"));
  const Environment environment = Environment::of_this_process();

  auto invocation = read_invocation({argv, argv + argc}, environment, this_machine());
  if (!invocation.settings) return invocation.exit_code;
  const Job& job = invocation.settings->job;

  Verdict verdict;
  {
    auto folder = LogFolder::make(job, environment);
    if (!folder) {
      log::error(folder.error().text, folder.error().hint);
      return 2;
    }
    verdict = guard(at_start, job.stop_signals, [&](int guard_line) {
      // Never destroyed: the process ends with the verdict, and nothing in it is taken down piece by piece.
      auto* agent = new Agent(job, environment, at_start, folder->base(), guard_line);
      return agent->run();
    });
  }
  leave(verdict);
}
