#include "dlaunch/log.hpp"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

namespace dlaunch {
namespace {

using testing::MatchesRegex;

class LogTest : public testing::Test {
 protected:
  LogTest() {
    log::set_sink([this](std::string line) { lines_.push_back(std::move(line)); });
    log::set_level("warning");
  }
  ~LogTest() override {
    log::set_sink({});
    log::set_level("warning");
  }
  std::vector<std::string> lines_;
};

TEST_F(LogTest, SaysWholeLines) {
  log::say("waiting for node 1");
  log::warn("two workers");
  log::error("--nnodes '0' is below 1", "give 1");
  log::error("no hint");
  EXPECT_THAT(lines_, testing::ElementsAre("dlaunch: waiting for node 1\n", "dlaunch: warning: two workers\n",
                                           "dlaunch: error: --nnodes '0' is below 1\n  give 1\n",
                                           "dlaunch: error: no hint\n"));
}

TEST_F(LogTest, KeepsWarningsToItselfAtTheLevelOfErrors) {
  log::set_level("ERROR");
  log::warn("x");
  log::say("y");
  EXPECT_THAT(lines_, testing::ElementsAre("dlaunch: y\n"));
}

TEST_F(LogTest, ShowsFactsWithUtcTimeToThoseWhoDebug) {
  log::debug("node=1");
  EXPECT_TRUE(lines_.empty());
  log::set_level("debug");
  log::debug("node=1 pid={2} %v");
  ASSERT_EQ(lines_.size(), 1u);
  EXPECT_THAT(lines_[0], MatchesRegex("dlaunch: [0-9-]+T[0-9:]+\\.[0-9]+Z node=1 pid=\\{2\\} %v\n"));
  log::say("hello");
  ASSERT_EQ(lines_.size(), 3u);
  EXPECT_THAT(lines_[2], MatchesRegex("dlaunch: .*Z said=\"hello\"\n"));
}

TEST_F(LogTest, KnowsPythonsNamesAndChangesNothingForOthers) {
  EXPECT_TRUE(log::set_level("Critical"));
  EXPECT_EQ(log::level(), log::Level::error);
  EXPECT_TRUE(log::set_level("INFO"));
  EXPECT_FALSE(log::set_level("loud"));
  EXPECT_FALSE(log::set_level(""));
  EXPECT_EQ(log::level(), log::Level::info);
}

TEST_F(LogTest, WritesToStderrUntilThereIsASink) {
  log::set_sink({});
  testing::internal::CaptureStderr();
  log::say("x");
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "dlaunch: x\n");
}

}  // namespace
}  // namespace dlaunch
