#include "agent/guard.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <string>
#include <vector>

#include "dlaunch/exit_status.hpp"
#include "dlaunch/log.hpp"
#include "dlaunch/process.hpp"
#include "dlaunch/process_tree.hpp"

namespace dlaunch {

namespace {

using Clock = std::chrono::steady_clock;

constexpr int kForWorkers[] = {SIGUSR1, SIGUSR2, SIGWINCH};
constexpr std::chrono::seconds kLastWait{10};

// `exec dlaunch` in a script may come with children of the script: they are not ours to kill.
std::vector<pid_t> children_before_us() {
  siginfo_t info{};
  if (::waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) != 0) return {};
  std::vector<pid_t> strangers;
  for (const auto& entry : descendants_of(::getpid())) strangers.push_back(entry.pid);
  return strangers;
}

class Guard {
 public:
  Guard(pid_t agent, int line, int signals, std::vector<pid_t> strangers)
      : agent_(agent), line_(line), signals_(signals), strangers_(std::move(strangers)) {}

  Verdict wait() {
    while (!agent_end_) {
      pollfd watched[2] = {{signals_, POLLIN, 0}, {line_, POLLIN, 0}};
      if (::poll(watched, line_open_ ? 2 : 1, -1) < 0 && errno != EINTR) break;
      if (line_open_ && watched[1].revents) read_verdict();
      take_signals();
    }
    if (line_open_) read_verdict();
    if (!verdict_known_) {
      log::error("the agent (pid " + std::to_string(agent_) + ") " +
                     (agent_end_ ? describe(*agent_end_) : "was lost") +
                     " before it could say how the job ended",
                 "its workers on this node are killed");
    }
    kill_what_is_left();
    return verdict_;
  }

 private:
  void read_verdict() {
    Verdict told;
    ssize_t bytes = ::recv(line_, &told, sizeof told, MSG_DONTWAIT);
    if (bytes == sizeof told) {
      verdict_ = told;
      verdict_known_ = true;
    } else if (bytes == 0 || (bytes < 0 && errno != EAGAIN && errno != EINTR)) {
      line_open_ = false;
    }
  }

  void take_signals() {
    signalfd_siginfo info;
    while (::read(signals_, &info, sizeof info) == sizeof info) {
      if (info.ssi_signo == SIGCHLD) {
        reap_all();
      } else {
        std::uint8_t number = static_cast<std::uint8_t>(info.ssi_signo);
        ::send(line_, &number, 1, MSG_NOSIGNAL | MSG_DONTWAIT);
      }
    }
  }

  // As the subreaper, or PID 1, we get whatever loses its parent.
  void reap_all() {
    for (;;) {
      siginfo_t info{};
      if (::waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid == 0) return;
      auto status = reap(info.si_pid);
      if (info.si_pid == agent_) agent_end_ = status.value_or(ExitStatus{});
    }
  }

  void kill_what_is_left() {
    auto deadline = Clock::now() + kLastWait;
    for (;;) {
      reap_all();
      siginfo_t info{};
      if (::waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) != 0 && errno == ECHILD) return;
      auto left = descendants_of(::getpid());
      for (pid_t stranger : strangers_) {
        auto family = descendants_of(stranger);
        std::erase_if(left, [&](const auto& entry) {
          return entry.pid == stranger || std::any_of(family.begin(), family.end(), [&](const auto& member) {
                   return member.pid == entry.pid;
                 });
        });
      }
      if (left.empty()) return;
      if (Clock::now() > deadline) {
        for (const auto& entry : left) {
          log::warn("pid " + std::to_string(entry.pid) + " (state " + entry.state +
                    ") did not end after SIGKILL");
        }
        return;
      }
      for (const auto& entry : left) ::kill(entry.pid, SIGKILL);
      pollfd child_ended{signals_, POLLIN, 0};
      ::poll(&child_ended, 1, 100);
      take_signals();
    }
  }

  pid_t agent_;
  int line_;
  int signals_;
  std::vector<pid_t> strangers_;
  bool line_open_ = true;
  bool verdict_known_ = false;
  Verdict verdict_;
  std::optional<ExitStatus> agent_end_;
};

}  // namespace

Verdict guard(const SignalState& at_start, const std::set<int>& stop_signals,
              const std::function<Verdict(int)>& agent) {
  sigset_t handled;
  sigemptyset(&handled);
  sigaddset(&handled, SIGCHLD);
  std::set<int> handed_on = stop_signals;
  handed_on.insert(std::begin(kForWorkers), std::end(kForWorkers));
  for (int signal : handed_on) {
    if (!at_start.is_ignored(signal)) sigaddset(&handled, signal);
  }
  // Blocked before the fork: from here on no signal is lost or ends us unheard.
  ::sigprocmask(SIG_BLOCK, &handled, nullptr);
  ::signal(SIGCHLD, SIG_DFL);  // ignored on entry it would take the exit codes away
  ::signal(SIGPIPE, SIG_IGN);
  ::signal(SIGXFSZ, SIG_IGN);  // a log file over `ulimit -f` is an error of that write
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);
  auto strangers = children_before_us();

  int line[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, line) != 0) {
    log::error(last_error("socketpair").text);
    return {};
  }
  pid_t child = ::fork();
  if (child < 0) {
    log::error(last_error("fork").text, "the limit on processes (ulimit -u) may be reached");
    return {};
  }
  if (child == 0) {
    ::close(line[0]);
    ::setsid();
    ::prctl(PR_SET_CHILD_SUBREAPER, 1);
    Verdict verdict = agent(::fcntl(line[1], F_DUPFD_CLOEXEC, 3));
    ::send(line[1], &verdict, sizeof verdict, MSG_NOSIGNAL);
    ::_exit(0);
  }
  ::close(line[1]);
  int signals = ::signalfd(-1, &handled, SFD_NONBLOCK | SFD_CLOEXEC);
  return Guard(child, line[0], signals, std::move(strangers)).wait();
}

void leave(const Verdict& verdict) {
  if (verdict.signal > 0 && ::getpid() != 1) {
    rlimit no_core{0, 0};
    ::setrlimit(RLIMIT_CORE, &no_core);
    ::signal(verdict.signal, SIG_DFL);
    sigset_t only;
    sigemptyset(&only);
    sigaddset(&only, verdict.signal);
    ::sigprocmask(SIG_UNBLOCK, &only, nullptr);
    ::raise(verdict.signal);
  }
  ::_exit(verdict.signal > 0 ? 128 + verdict.signal : verdict.exit_code);
}

}  // namespace dlaunch
