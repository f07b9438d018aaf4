#include "launcher/invocation.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dlaunch/log.hpp"
#include "fake_machine.hpp"

namespace dlaunch {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

class InvocationTest : public testing::Test {
 protected:
  InvocationTest() {
    log::set_sink([this](std::string line) { said_ += line; });
  }
  ~InvocationTest() override {
    log::set_sink({});
    log::set_level("warning");
  }

  Invocation invoke(std::vector<std::string> words, Environment::Map variables = {}) {
    words.insert(words.begin(), "dlaunch");
    testing::internal::CaptureStdout();
    Invocation invocation = read_invocation(words, Environment(std::move(variables)), machine_.view());
    answered_ = testing::internal::GetCapturedStdout();
    return invocation;
  }

  FakeMachine machine_;
  std::string said_, answered_;
};

TEST_F(InvocationTest, HandsOnAJobInSilence) {
  Invocation invocation = invoke({"--nproc_per_node", "2", "x.py"});
  ASSERT_TRUE(invocation.settings);
  EXPECT_EQ(invocation.settings->job.nproc, 2);
  EXPECT_EQ(said_ + answered_, "");
}

TEST_F(InvocationTest, RefusesWithAMessageAndTheNextStep) {
  Invocation invocation = invoke({"--nnodes", "2", "--node_rank", "1", "x.py"});
  EXPECT_FALSE(invocation.settings);
  EXPECT_EQ(invocation.exit_code, 2);
  EXPECT_EQ(said_,
            "dlaunch: error: --node_rank '1' needs --master_addr\n"
            "  give the address of node 0, the same on every node\n");
  EXPECT_EQ(answered_, "");
}

TEST_F(InvocationTest, RefusesWhatTheScannerAndTheExclusionsRefuse) {
  EXPECT_EQ(invoke({"--nope", "x"}).exit_code, 2);
  EXPECT_THAT(said_, StartsWith("dlaunch: error: unknown flag '--nope'\n  "));
  said_.clear();
  EXPECT_EQ(invoke({"-m", "--no_python", "x"}).exit_code, 2);
  EXPECT_THAT(said_, StartsWith("dlaunch: error: --module and --no_python cannot be used together\n"));
  EXPECT_EQ(invoke({}).exit_code, 2);
}

TEST_F(InvocationTest, AnswersHelpAndVersionWhateverElseIsWrong) {
  Invocation help = invoke({"--nnodes", "0", "--help"}, {{"PET_NNODES", "x"}});
  EXPECT_FALSE(help.settings);
  EXPECT_EQ(help.exit_code, 0);
  EXPECT_THAT(answered_, StartsWith("Usage: dlaunch "));
  EXPECT_EQ(invoke({"--version"}).exit_code, 0);
  EXPECT_EQ(answered_, "dlaunch " DLAUNCH_VERSION "\n");
  EXPECT_EQ(said_, "");
}

TEST_F(InvocationTest, ExplainsAndRunsNothing) {
  for (const char* flag : {"--explain", "--dry-run"}) {
    Invocation invocation = invoke({flag, "x.py"});
    EXPECT_FALSE(invocation.settings);
    EXPECT_EQ(invocation.exit_code, 0);
    EXPECT_THAT(answered_, StartsWith("settings, each with its origin:\n"));
  }
  EXPECT_EQ(invoke({"--explain=json", "x.py"}).exit_code, 0);
  EXPECT_THAT(answered_, StartsWith("{\n"));
}

TEST_F(InvocationTest, GivesEachWarningOnce) {
  EXPECT_TRUE(invoke({"--numa_binding", "node", "x.py"}).settings);
  EXPECT_EQ(said_, "dlaunch: warning: --numa_binding is not built yet and has no effect\n");
}

TEST_F(InvocationTest, ShowsIgnoredFlagsToThoseWhoDebug) {
  EXPECT_TRUE(invoke({"--start_method", "fork", "x.py"}).settings);
  EXPECT_EQ(said_, "");
  EXPECT_TRUE(invoke({"--start_method", "fork", "--log_level", "debug", "x.py"}).settings);
  EXPECT_THAT(said_, HasSubstr("Z ignored=--start_method value=fork\n"));
}

}  // namespace
}  // namespace dlaunch
