#include "dlaunch/log_plan.hpp"

#include <gtest/gtest.h>

namespace dlaunch {
namespace {

Round round_of(int number = 0) {
  Round round;
  round.number = number;
  round.layout.nodes = {{"a", 4, "default"}, {"b", 4, "default"}};
  round.node = 1;
  return round;
}

TEST(LogPlan, WithoutFlagsBothStreamsGoToTheConsole) {
  auto logs = plan_logs(Job{}, round_of(), 0, "/tmp/run");
  EXPECT_TRUE(logs.console_out && logs.console_err);
  EXPECT_EQ(logs.out_file + logs.err_file + logs.label_out + logs.label_err, "");
  EXPECT_EQ(logs.error_file, "/tmp/run/error_0_0.json");
}

TEST(LogPlan, ARedirectedStreamLeavesTheConsole) {
  Job job;
  job.redirects.all = StreamSpec::err;
  auto logs = plan_logs(job, round_of(2), 3, "/tmp/run");
  EXPECT_EQ(logs.err_file, "/tmp/run/attempt_2/3/stderr.log");
  EXPECT_EQ(logs.error_file, "/tmp/run/attempt_2/3/error.json");
  EXPECT_FALSE(logs.console_err);
  EXPECT_EQ(logs.out_file, "");
  EXPECT_TRUE(logs.console_out);
}

TEST(LogPlan, ATeedStreamGoesToBothAndItsLinesAreLabelledOnTheConsole) {
  Job job;
  job.role = "trainer";
  job.redirects.all = StreamSpec::both;
  job.tee.by_local_rank = {{2, StreamSpec::out}};
  auto logs = plan_logs(job, round_of(), 2, "/tmp/run");
  EXPECT_EQ(logs.out_file, "/tmp/run/attempt_0/2/stdout.log");
  EXPECT_TRUE(logs.console_out);
  EXPECT_EQ(logs.label_out, "[trainer2]:");
  EXPECT_FALSE(logs.console_err);
  EXPECT_EQ(logs.label_err, "");
  EXPECT_FALSE(plan_logs(job, round_of(), 1, "/tmp/run").console_out);
}

TEST(LogPlan, TheFilterSilencesTheConsoleAndNeverAFile) {
  Job job;
  job.local_ranks_filter = {0};
  job.tee.all = StreamSpec::out;
  auto shown = plan_logs(job, round_of(), 0, "/tmp/run");
  EXPECT_TRUE(shown.console_out && shown.console_err);
  auto silent = plan_logs(job, round_of(), 1, "/tmp/run");
  EXPECT_FALSE(silent.console_out || silent.console_err);
  EXPECT_EQ(silent.out_file, "/tmp/run/attempt_0/1/stdout.log");
  EXPECT_EQ(silent.err_file, "");
}

TEST(LogPlan, LogFileTakesBothStreamsAndIsAppendedToInLaterRounds) {
  Job job;
  job.log_file = "out%i_%r%%.log";
  auto logs = plan_logs(job, round_of(), 2, "");
  EXPECT_EQ(logs.out_file, "out2_6%.log");
  EXPECT_EQ(logs.err_file, logs.out_file);
  EXPECT_FALSE(logs.console_out || logs.console_err || logs.append);
  EXPECT_TRUE(plan_logs(job, round_of(1), 2, "").append);
}

TEST(LogPlan, ACopyThatRunsAloneKeepsItsIndexInTheFileName) {
  Job job;
  job.copies = Copies{.count = 3, .only = 2};
  job.log_file = "process%i.log";
  Round round;
  round.layout.nodes = {{"a", 1, "default"}};
  EXPECT_EQ(plan_logs(job, round, 0, "").out_file, "process2.log");
}

TEST(LogPlan, IndependentCopiesHaveNoErrorFile) {
  Job job;
  job.copies = Copies{.count = 3, .only = std::nullopt};
  EXPECT_EQ(plan_logs(job, round_of(), 0, "/tmp/run").error_file, "");
  job.copies->group = true;
  EXPECT_NE(plan_logs(job, round_of(), 0, "/tmp/run").error_file, "");
}

TEST(LogPlan, WithoutAFolderNoOutputIsLost) {
  Job job;
  job.redirects.all = StreamSpec::both;
  EXPECT_TRUE(plan_logs(job, round_of(), 0, "").console_out);
}

TEST(LogPlan, KnowsWhenAFolderIsWanted) {
  Job job;
  EXPECT_FALSE(wants_log_folder(job));
  job.log_file = "x%i";
  EXPECT_FALSE(wants_log_folder(job));
  job.tee.by_local_rank = {{0, StreamSpec::out}};
  EXPECT_TRUE(wants_log_folder(job));
  job = Job{};
  job.log_dir = "logs";
  EXPECT_TRUE(wants_log_folder(job));
}

TEST(ErrorMessage, ReadsBothFormsOfErrorJson) {
  EXPECT_EQ(
      error_message(
          R"({"message":{"message":"ValueError: x","extraInfo":{"py_callstack":"…","timestamp":"17"}}})"),
      "ValueError: x");
  EXPECT_EQ(error_message(R"({"message":"Signal 11 received"})"), "Signal 11 received");
}

TEST(ErrorMessage, SurvivesAnyBytes) {
  for (const char* text :
       {"", "{", "null", "[1]", "7", "{}", R"({"message":7})", R"({"message":{"message":[]}})",
        R"({"message":null})", "{\"message\":\"\xff\"}", R"({"message":"cut o)"}) {
    EXPECT_EQ(error_message(text), "") << text;
  }
  EXPECT_EQ(error_message(std::string(1 << 20, '[')), "");
}

}  // namespace
}  // namespace dlaunch
