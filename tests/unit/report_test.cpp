#include "dlaunch/report.hpp"

#include <gtest/gtest.h>

namespace dlaunch {
namespace {

WorkerFailure failure_of_rank_5() {
  WorkerFailure failure;
  failure.worker = {.rank = 5, .node = 1, .host = "gpu-b", .local = 1, .pid = 4242};
  failure.status = {.code = 3};
  failure.after = std::chrono::milliseconds(12'400);
  failure.last_words = {"RuntimeError: shapes do not match"};
  failure.log = "logs/run/attempt_0/1/stderr.log";
  return failure;
}

ExitStatus killed_by(int signal) { return {.signal = signal}; }

TEST(Report, NamesTheFirstFailureAndWhatIsKnownOfIt) {
  JobReport report{.first = failure_of_rank_5(), .nnodes = 2};
  for (int rank : {7, 6, 4, 3, 2, 1, 0}) report.stopped.emplace_back(rank, killed_by(15));
  EXPECT_EQ(render(report),
            "dlaunch: job failed: rank 5 (node 1 gpu-b, local 1, pid 4242) exited with code 3 after 12.4 s\n"
            "  last words:\n"
            "    | RuntimeError: shapes do not match\n"
            "  log: logs/run/attempt_0/1/stderr.log\n"
            "  stopped by dlaunch: ranks 0-4, 6, 7 (SIGTERM)\n");
}

TEST(Report, TheNodeIsLeftOutWhereThereIsOnlyOne) {
  EXPECT_EQ(describe(failure_of_rank_5().worker, 1), "rank 5 (local 1, pid 4242)");
}

TEST(Report, CopiesAreCalledCopies) {
  JobReport report{.first =
                       WorkerFailure{.worker = {.rank = 1, .pid = 12, .copies = 3}, .status = {.code = 7}}};
  report.stopped = {{0, killed_by(15)}, {2, killed_by(15)}};
  EXPECT_EQ(render(report),
            "dlaunch: job failed: copy 1 of 3 (pid 12) exited with code 7 after 0.0 s\n"
            "  stopped by dlaunch: copies 0, 2 (SIGTERM)\n");
}

TEST(Report, NamesTheSignalAndTheCoreFile) {
  WorkerFailure failure{.worker = {.rank = 1, .local = 1, .pid = 9}, .status = {.signal = 11, .core = true}};
  failure.after = std::chrono::seconds(125);
  EXPECT_EQ(describe(failure, 1),
            "rank 1 (local 1, pid 9) was killed by SIGSEGV after 2 min 5 s, core dumped");
  failure.after = std::chrono::hours(26);
  failure.status = killed_by(9);
  EXPECT_EQ(describe(failure, 1), "rank 1 (local 1, pid 9) was killed by SIGKILL after 26 h 0 min");
}

TEST(Report, SaysWhyAWorkerCouldNotBeStarted) {
  JobReport report;
  report.first.emplace().exec_error = "'./trian': No such file or directory";
  EXPECT_EQ(
      render(report),
      "dlaunch: job failed: rank 0 (local 0) could not be started: './trian': No such file or directory\n");
}

TEST(Report, WithoutAFailedWorkerTheReasonComesFirst) {
  JobReport report{.reason = "timed out after 900 s (--join_timeout) waiting for node 1",
                   .notes = {"here: 0 gpu-a"}};
  EXPECT_EQ(render(report),
            "dlaunch: job failed: timed out after 900 s (--join_timeout) waiting for node 1\n"
            "  here: 0 gpu-a\n");
}

TEST(Report, StoppedWorkersAreGroupedByWhatEndedThemAndKilledOnesComeLast) {
  JobReport report{.reason = "x"};
  report.stopped = {
      {0, killed_by(9)}, {1, killed_by(15)}, {2, {.code = 1}}, {3, {.code = 0}}, {4, killed_by(15)}};
  EXPECT_EQ(render(report),
            "dlaunch: job failed: x\n"
            "  stopped by dlaunch: ranks 1, 4 (SIGTERM)\n"
            "  stopped by dlaunch: rank 2 (exit code 1)\n"
            "  stopped by dlaunch: rank 3 (exit code 0)\n"
            "  stopped by dlaunch: rank 0 (SIGKILL)\n");
}

TEST(Report, TiedAndLaterFailuresAreToldApart) {
  JobReport report{.first = failure_of_rank_5(), .nnodes = 1};
  report.first->last_words.clear();
  report.first->log.clear();
  report.tied = {{.worker = {.rank = 6, .local = 2, .pid = 7}, .status = {.code = 1}}};
  report.tied[0].last_words = {"oops"};
  report.others = {{.worker = {.rank = 7, .local = 3, .pid = 8}, .status = {.code = 2}}};
  EXPECT_EQ(render(report),
            "dlaunch: job failed: rank 5 (local 1, pid 4242) exited with code 3 after 12.4 s\n"
            "  at the same time: rank 6 (local 2, pid 7) exited with code 1 after 0.0 s\n"
            "  last words:\n"
            "    | oops\n"
            "  also failed: rank 7 (local 3, pid 8) exited with code 2 after 0.0 s\n");
}

TEST(Report, EveryFailedCopyIsListedThoughNotEachOnItsOwnLine) {
  JobReport report;
  for (int copy = 0; copy < 40; ++copy) {
    WorkerFailure failure{.worker = {.rank = copy, .pid = 100 + copy, .copies = 40},
                          .status = {.code = copy == 39 ? 2 : 1}};
    if (copy == 0) {
      report.first = failure;
    } else {
      report.others.push_back(failure);
    }
  }
  std::string text = render(report);
  EXPECT_NE(text.find("also failed: copy 8 of 40 (pid 108)"), std::string::npos);
  EXPECT_NE(text.find("also failed: copies 9-38 (exit code 1)\n"), std::string::npos) << text;
  EXPECT_NE(text.find("also failed: copy 39 (exit code 2)\n"), std::string::npos);
}

TEST(Report, AMessageIsShownUnlessTheLastWordsSayIt) {
  WorkerFailure failure = failure_of_rank_5();
  failure.message = "RuntimeError: shapes do not match";
  EXPECT_EQ(render({.first = failure}).find("message:"), std::string::npos);
  failure.last_words.clear();
  EXPECT_NE(render({.first = failure}).find("  message:\n    | RuntimeError: shapes do not match\n"),
            std::string::npos);
}

TEST(Report, NothingAWorkerSaidCanSteerATerminal) {
  WorkerFailure failure;
  failure.last_words = {"\x1b[2J\x1b]0;title\a", "tab\tstays",       "del\x7f",
                        "c1 \xc2\x9b",           "bad \xff\xe2\x82", "caf\xc3\xa9 \xe2\x82\xac",
                        "over\xc0\xaf",          "line end\r"};
  failure.log = "a\nb";
  std::string text = render({.first = failure});
  EXPECT_NE(text.find("| \\x1b[2J\\x1b]0;title\\x07\n"), std::string::npos) << text;
  EXPECT_NE(text.find("| tab\tstays\n"), std::string::npos);
  EXPECT_NE(text.find("| del\\x7f\n"), std::string::npos);
  EXPECT_NE(text.find("| c1 \\xc2\\x9b\n"), std::string::npos);
  EXPECT_NE(text.find("| bad \\xff\\xe2\\x82\n"), std::string::npos);
  EXPECT_NE(text.find("| caf\xc3\xa9 \xe2\x82\xac\n"), std::string::npos);
  EXPECT_NE(text.find("| over\\xc0\\xaf\n"), std::string::npos);
  EXPECT_NE(text.find("| line end\n"), std::string::npos);
  EXPECT_NE(text.find("log: a\\x0ab\n"), std::string::npos);
}

TEST(Report, IsBounded) {
  WorkerFailure failure;
  failure.message.assign(1 << 20, 'm');
  failure.last_words.assign(5000, std::string(1 << 16, '\x01'));
  failure.last_words.back() = "the end";
  std::string text = render({.first = failure});
  EXPECT_LT(text.size(), 64u * 1024);
  EXPECT_NE(text.find("| the end\n"), std::string::npos);
}

TEST(RankList, JoinsThreeAndMoreInARow) {
  EXPECT_EQ(rank_list({}), "");
  EXPECT_EQ(rank_list({3}), "3");
  EXPECT_EQ(rank_list({7, 6, 4, 3, 2, 1, 0}), "0-4, 6, 7");
  EXPECT_EQ(rank_list({1, 1, 2, 9, 8, 7}), "1, 2, 7-9");
}

}  // namespace
}  // namespace dlaunch
