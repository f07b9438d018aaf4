#include "agent/verdict.hpp"

#include <gmock/gmock.h>
#include <signal.h>

namespace dlaunch {
namespace {

using namespace std::chrono_literals;

const auto kStart = std::chrono::steady_clock::time_point{} + 1h;

Layout two_nodes() { return {{{"gpu-a", 2, "default"}, {"gpu-b", 2, "default"}}}; }

WorkerEnd ended(int rank, ExitStatus status, std::chrono::milliseconds at,
                std::chrono::microseconds error = 0us) {
  WorkerEnd end;
  end.exited.rank = rank;
  end.exited.local = rank % 2;
  end.exited.pid = 100 + rank;
  end.exited.status = status;
  end.node = rank / 2;
  end.failed_at = kStart + at;
  end.error = error;
  return end;
}

WorkerEnd stopped(WorkerEnd end, bool evidence = false) {
  end.exited.stopped = true;
  end.exited.evidence = evidence;
  return end;
}

TEST(Verdicts, NothingFailedMeansCodeZero) {
  Verdicts verdicts;
  EXPECT_FALSE(verdicts.failed());
  EXPECT_EQ(verdicts.exit_code(), 0);
}

TEST(Verdicts, TheEarliestOfOneNodeIsNamedWhateverWasHeardFirst) {
  Verdicts verdicts;
  verdicts.add(ended(1, {.code = 4}, 20ms));
  verdicts.add(ended(0, {.code = 3}, 10ms));
  EXPECT_EQ(verdicts.exit_code(), 3);
  EXPECT_EQ(verdicts.report(two_nodes(), 0).first->worker.rank, 0);
}

TEST(Verdicts, WorkersThatWereStoppedAreListedApartAndNeverNamed) {
  Verdicts verdicts;
  verdicts.add(ended(0, {.code = 3}, 10ms));
  verdicts.add(stopped(ended(1, {.signal = SIGTERM}, 5ms)));
  auto report = verdicts.report(two_nodes(), 0);
  EXPECT_EQ(report.first->worker.rank, 0);
  ASSERT_EQ(report.stopped.size(), 1u);
  EXPECT_EQ(report.stopped[0].first, 1);
}

TEST(Verdicts, AStoppedWorkerWithEarlierEvidenceIsNamedButTheCodeIsOfOneThatEndedByItself) {
  Verdicts verdicts;
  verdicts.add(ended(1, {.code = 6}, 500ms));
  verdicts.add(stopped(ended(0, {.signal = SIGTERM}, 300ms), true));
  EXPECT_EQ(verdicts.report(two_nodes(), 0).first->worker.rank, 0);
  EXPECT_EQ(verdicts.exit_code(), 6);
}

TEST(Verdicts, EvidenceOfAWorkerThatThenExitsZeroDoesNotCount) {
  Verdicts verdicts;
  verdicts.add(ended(1, {.code = 6}, 500ms));
  verdicts.add(stopped(ended(0, {}, 300ms), true));
  EXPECT_EQ(verdicts.report(two_nodes(), 0).first->worker.rank, 1);
}

TEST(Verdicts, ADifferenceAcrossNodesBelowTheClockErrorIsATieThatTheTriggerWins) {
  Verdicts verdicts;
  verdicts.add(ended(2, {.code = 7}, 11ms, 1ms));
  verdicts.add(ended(0, {.code = 3}, 10ms, 1ms));
  auto report = verdicts.report(two_nodes(), 0);
  EXPECT_EQ(report.first->worker.rank, 2);
  ASSERT_EQ(report.tied.size(), 1u);
  EXPECT_EQ(report.tied[0].worker.rank, 0);
  EXPECT_EQ(verdicts.exit_code(), 7);
}

TEST(Verdicts, ADifferenceAcrossNodesAboveTheClockErrorIsDecidedByTime) {
  Verdicts verdicts;
  verdicts.add(ended(2, {.code = 7}, 20ms, 1ms));
  verdicts.add(ended(0, {.code = 3}, 10ms, 1ms));
  EXPECT_EQ(verdicts.exit_code(), 3);
}

TEST(Verdicts, TheLaterWordAboutARankReplacesTheEarlier) {
  Verdicts verdicts;
  verdicts.add(ended(0, {.code = 3}, 10ms));
  auto story = ended(0, {.code = 3}, 5ms);
  story.exited.last_words = {"RuntimeError: no"};
  verdicts.add(story);
  EXPECT_THAT(verdicts.report(two_nodes(), 0).first->last_words, testing::ElementsAre("RuntimeError: no"));
}

TEST(Verdicts, OnlyTheFourStopSignalsMayBeAStopOfTheWholeJob) {
  for (int signal = 1; signal < 32; ++signal) {
    Verdicts verdicts;
    verdicts.add(ended(0, {.signal = signal}, 10ms));
    bool expected = signal == SIGTERM || signal == SIGINT || signal == SIGHUP || signal == SIGQUIT;
    EXPECT_EQ(verdicts.may_be_a_stop() != 0, expected) << signal;
    EXPECT_EQ(verdicts.exit_code(), 128 + signal);
  }
}

TEST(Verdicts, AProgramThatCouldNotBeStartedGivesItsOwnCode) {
  Verdicts verdicts;
  auto end = ended(0, {.code = 127}, 10ms);
  end.exited.exec_error = "'nope': No such file or directory";
  verdicts.add(end);
  EXPECT_TRUE(verdicts.could_not_start());
  EXPECT_EQ(verdicts.exit_code(), 127);
}

}  // namespace
}  // namespace dlaunch
