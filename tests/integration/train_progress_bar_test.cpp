#include <fcntl.h>
#include <gmock/gmock.h>
#include <poll.h>
#include <pty.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

#include "trainer/report/progress_bar.hpp"

namespace trainer {
namespace {

using testing::AllOf;
using testing::EndsWith;
using testing::HasSubstr;
using testing::Not;

// A terminal of 60 columns.
class ProgressBarTest : public testing::Test {
 protected:
  ProgressBarTest() {
    winsize size{24, 60, 0, 0};
    EXPECT_EQ(::openpty(&outside_, &terminal_, nullptr, nullptr, &size), 0);
    ::setenv("TERM", "xterm", 1);
  }
  ~ProgressBarTest() override {
    ::close(outside_);
    ::close(terminal_);
  }
  std::string shown() {
    std::string text;
    char bytes[4096];
    for (pollfd ready{outside_, POLLIN, 0}; ::poll(&ready, 1, 50) == 1;) {
      auto got = ::read(outside_, bytes, sizeof bytes);
      if (got <= 0) break;
      text.append(bytes, std::size_t(got));
    }
    return text;
  }

  int outside_ = -1;
  int terminal_ = -1;
};

TEST_F(ProgressBarTest, DrawsOverItsOwnLineInTheTerminalsWidth) {
  ProgressBar bar(terminal_);
  bar.draw(3, 10, 0.5, 0);
  auto text = shown();
  EXPECT_THAT(text,
              AllOf(testing::StartsWith("\r\033[K"), HasSubstr("3/10  loss 0.5000"), Not(HasSubstr("\n"))));
  EXPECT_LE(text.size(), 4u + 59);
}

TEST_F(ProgressBarTest, DrawsAtMostTenTimesASecond) {
  ProgressBar bar(terminal_);
  // However slow the machine is, most of these come within a tenth of a second of another.
  for (int i = 0; i < 20000; ++i) bar.draw(i, 20000, 0.5, 0);
  auto text = shown();
  EXPECT_GT(std::count(text.begin(), text.end(), '\r'), 0);
  EXPECT_LT(std::count(text.begin(), text.end(), '\r'), 200);
}

TEST_F(ProgressBarTest, IsWipedBeforeOtherTextAndAtTheEnd) {
  {
    ProgressBar bar(terminal_);
    bar.wipe();
    EXPECT_EQ(shown(), "");
    bar.draw(1, 10, 0.5, 0);
    bar.wipe();
    EXPECT_THAT(shown(), EndsWith("\r\033[K"));
    bar.draw(2, 10, 0.5, 0);  // at once: the line is empty
    EXPECT_THAT(shown(), HasSubstr("2/10"));
  }
  EXPECT_EQ(shown(), "\r\033[K");
}

TEST_F(ProgressBarTest, ATerminalThatIsStoppedDoesNotStopTheTraining) {
  ProgressBar bar(terminal_);
  ASSERT_EQ(::tcflow(terminal_, TCOOFF), 0);
  // A write would wait for ever; the test's time-out would tell.
  bar.draw(1, 10, 0.5, 0);
  EXPECT_EQ(shown(), "");
  ASSERT_EQ(::tcflow(terminal_, TCOON), 0);
  bar.draw(2, 10, 0.5, 0);
  EXPECT_THAT(shown(), HasSubstr("2/10"));
}

TEST_F(ProgressBarTest, IsSilentWhereNobodyLooks) {
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_NONBLOCK | O_CLOEXEC), 0);
  {
    ProgressBar bar(ends[1]);
    bar.draw(1, 10, 0.5, 0);
    ProgressBar none(-1);
    none.draw(1, 10, 0.5, 0);
    ::setenv("TERM", "dumb", 1);
    ProgressBar dumb(terminal_);
    dumb.draw(1, 10, 0.5, 0);
  }
  char byte = 0;
  EXPECT_EQ(::read(ends[0], &byte, 1), -1);
  EXPECT_EQ(shown(), "");
  ::close(ends[0]);
  ::close(ends[1]);
}

}  // namespace
}  // namespace trainer
