// Faults on purpose, done in a child.
#include <gmock/gmock.h>
#include <poll.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>

#include "trainer/loop/injection.hpp"

namespace trainer {
namespace {

using How = Injection::How;

TEST(Perform, ExitHasTheCodeAskedFor) {
  EXPECT_EXIT(perform({.how = How::exit, .number = 37}), testing::ExitedWithCode(37), "");
  EXPECT_EXIT(perform({.how = How::exit, .number = 0}), testing::ExitedWithCode(0), "");
}

TEST(Perform, KillIsByASignalThatNobodyCatches) {
  EXPECT_EXIT(perform({.how = How::kill}), testing::KilledBySignal(SIGKILL), "");
}

TEST(Perform, AHangOutlastsSignalsThatAreHandled) {
  auto before = ::signal(SIGUSR1, [](int) {});
  pid_t pid = ::fork();
  if (pid == 0) {
    perform({.how = How::hang});
    ::_exit(1);
  }
  ::signal(SIGUSR1, before);
  int pidfd = int(::syscall(SYS_pidfd_open, pid, 0));
  if (pidfd < 0) {
    ::kill(pid, SIGKILL);
    ::waitpid(pid, nullptr, 0);
    GTEST_SKIP() << "no pidfd_open here";
  }
  pollfd ended{pidfd, POLLIN, 0};
  for (int i = 0; i < 5; ++i) {
    ::kill(pid, SIGUSR1);
    EXPECT_EQ(::poll(&ended, 1, 20), 0);
  }
  ::kill(pid, SIGKILL);
  EXPECT_EQ(::poll(&ended, 1, 10'000), 1);
  ::close(pidfd);
  ::waitpid(pid, nullptr, 0);
}

TEST(Perform, SlowTakesAtLeastItsTimeAndReturns) {
  auto before = std::chrono::steady_clock::now();
  perform({.how = How::slow, .number = 30});
  EXPECT_GE(std::chrono::steady_clock::now() - before, std::chrono::milliseconds(30));
}

TEST(Perform, NanAndFlipAreLeftToTheLoop) {
  perform({.how = How::nan});
  perform({.how = How::flip});
}

}  // namespace
}  // namespace trainer
