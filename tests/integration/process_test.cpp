#include "dlaunch/process.hpp"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>

#include "dlaunch/kernel.hpp"
#include "dlaunch/process_tree.hpp"

namespace dlaunch {
namespace {

// Children of the shell stand for workers here: what is tested is how they are started and reaped.
class SpawnerTest : public testing::Test {
 protected:
  // The end of `command` and all that it wrote.
  struct Run {
    ExitStatus status;
    std::string output;
  };

  Result<Child> spawn(std::vector<std::string> arguments, int out = -1) {
    SpawnRequest request;
    request.arguments = std::move(arguments);
    request.environment = Environment({{"PATH", "/usr/bin:/bin"}, {"GREETING", "hello"}});
    request.out = out;
    return spawner_->spawn(request);
  }

  Run run(const std::string& script) {
    int ends[2];
    EXPECT_EQ(::pipe2(ends, O_CLOEXEC), 0);
    auto child = spawn({"sh", "-c", script}, ends[1]);
    ::close(ends[1]);
    Run run;
    EXPECT_TRUE(child) << child.error().text;
    char bytes[4096];
    for (ssize_t n; (n = ::read(ends[0], bytes, sizeof bytes)) > 0;) {
      run.output.append(bytes, static_cast<std::size_t>(n));
    }
    ::close(ends[0]);
    run.status = wait(*child);
    return run;
  }

  static ExitStatus wait(const Child& child) {
    pollfd ended{child.pidfd, POLLIN, 0};
    EXPECT_EQ(::poll(&ended, 1, 10'000), 1) << "the child does not end";
    ::close(child.pidfd);
    auto status = reap(child.pid);
    EXPECT_TRUE(status.has_value());
    return status.value_or(ExitStatus{});
  }

  static bool has_children() {
    siginfo_t info{};
    return ::waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) == 0;
  }

  SignalState at_start_ = SignalState::of_this_process();
  std::unique_ptr<Spawner> spawner_ = std::make_unique<Spawner>(at_start_);
};

TEST_F(SpawnerTest, AnExitCodeIsNeverTakenForASignal) {
  EXPECT_EQ(run("exit 15").status, (ExitStatus{.code = 15}));
  EXPECT_EQ(run("kill -15 $$").status, (ExitStatus{.signal = 15}));
}

TEST_F(SpawnerTest, TheChildHasTheGivenEnvironmentAndNothingElse) {
  ::setenv("DLAUNCH_TEST_LEAK", "1", 1);
  EXPECT_EQ(run("echo \"$GREETING $DLAUNCH_TEST_LEAK\"").output, "hello \n");
}

TEST_F(SpawnerTest, ADescriptorWithoutCloseOnExecDoesNotLeak) {
  int leak = ::open("/dev/null", O_RDONLY);  // no O_CLOEXEC on purpose
  ASSERT_GE(leak, 3);
  // No pipeline: the shell's own end of one would be seen now and then. `:` keeps `ls` a child of the shell.
  EXPECT_EQ(run("ls /proc/$$/fd; :").output, "0\n1\n2\n");
  kernel::pretend("close_range");
  EXPECT_EQ(run("ls /proc/$$/fd; :").output, "0\n1\n2\n");
  kernel::pretend(nullptr);
  // The control: a plain child of ours does see it.
  std::string control = "ls /proc/self/fd | tr '\\n' ' '";
  FILE* plain = ::popen(control.c_str(), "r");
  char seen[256] = {};
  ASSERT_NE(std::fgets(seen, sizeof seen, plain), nullptr);
  ::pclose(plain);
  EXPECT_THAT(std::string(seen), testing::HasSubstr(std::to_string(leak)));
  ::close(leak);
}

TEST_F(SpawnerTest, AFailedStartIsAnErrorAndLeavesNoZombie) {
  auto missing = spawn({"/nowhere/program"});
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().code, Errc::not_found);
  std::string file = testing::TempDir() + "/no_interpreter";
  std::ofstream(file) << "#!/nowhere/interpreter\n";
  ::chmod(file.c_str(), 0755);
  auto broken = spawn({file});  // exec itself fails: the child existed
  ASSERT_FALSE(broken);
  EXPECT_THAT(broken.error().text, testing::HasSubstr("interpreter"));
  EXPECT_FALSE(has_children());
}

TEST_F(SpawnerTest, AFailedStartWritesNoneOfOurBufferedOutput) {
  std::string file = testing::TempDir() + "/no_interpreter";
  std::ofstream(file) << "#!/nowhere/interpreter\n";
  ::chmod(file.c_str(), 0755);
  std::string out = testing::TempDir() + "/buffered";
  FILE* buffered = std::fopen(out.c_str(), "w");
  std::fputs("once\n", buffered);  // stays in the buffer, of which the child has a copy
  EXPECT_FALSE(spawn({file}));
  std::fclose(buffered);
  EXPECT_EQ(std::filesystem::file_size(out), 5u);
}

TEST_F(SpawnerTest, BlockedAndIgnoredSignalsOfOursAreNotTheChilds) {
  sigset_t more, before;
  sigemptyset(&more);
  sigaddset(&more, SIGUSR1);
  ::sigprocmask(SIG_BLOCK, &more, &before);
  auto old = ::signal(SIGPIPE, SIG_IGN);
  // Not of the shell: it blocks all signals for a moment when it starts a program.
  auto seen = run("exec grep -E 'Sig(Blk|Ign)' /proc/self/status").output;
  ::signal(SIGPIPE, old);
  ::sigprocmask(SIG_SETMASK, &before, nullptr);
  EXPECT_EQ(seen, "SigBlk:\t0000000000000000\nSigIgn:\t0000000000000000\n");
}

TEST_F(SpawnerTest, OurHigherLimitOnOpenFilesIsNotTheChilds) {
  rlimit before{};
  ::getrlimit(RLIMIT_NOFILE, &before);
  rlimit low{256, before.rlim_max};
  ::setrlimit(RLIMIT_NOFILE, &low);
  spawner_ = std::make_unique<Spawner>(at_start_);
  rlimit ours{};
  ::getrlimit(RLIMIT_NOFILE, &ours);
  EXPECT_EQ(ours.rlim_cur, before.rlim_max);
  EXPECT_EQ(run("ulimit -Sn").output, "256\n");
  ::setrlimit(RLIMIT_NOFILE, &before);
}

TEST_F(SpawnerTest, AChildLeadsASessionOfItsOwn) {
  auto child = spawn({"sleep", "60"});
  ASSERT_TRUE(child);
  EXPECT_EQ(::getsid(child->pid), child->pid);
  EXPECT_EQ(::getpgid(child->pid), child->pid);
  ::kill(-child->pid, SIGKILL);
  EXPECT_EQ(wait(*child).signal, SIGKILL);
}

TEST_F(SpawnerTest, AChildDiesWithItsParent) {
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  pid_t parent = ::fork();
  if (parent == 0) {
    auto child = spawn({"sleep", "60"});
    pid_t pid = child ? child->pid : -1;
    if (::write(ends[1], &pid, sizeof pid) != sizeof pid) ::_exit(1);
    ::_exit(0);
  }
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);
  pid_t orphan = -1;
  ASSERT_EQ(::read(ends[0], &orphan, sizeof orphan), static_cast<ssize_t>(sizeof orphan));
  ::waitpid(parent, nullptr, 0);
  int raw = 0;
  EXPECT_EQ(::waitpid(orphan, &raw, 0), orphan);
  EXPECT_TRUE(WIFSIGNALED(raw) && WTERMSIG(raw) == SIGKILL);
  ::prctl(PR_SET_CHILD_SUBREAPER, 0);
  ::close(ends[0]);
  ::close(ends[1]);
}

TEST_F(SpawnerTest, TheNumberOfOpenDescriptorsStaysTheSame) {
  auto count = [] {
    int open = 0;
    for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) ++open;
    return open;
  };
  run("exit 0");  // the first start makes what all share
  int before = count();
  for (int i = 0; i < 50; ++i) {
    EXPECT_EQ(run("exit 3").status.code, 3);
    EXPECT_FALSE(spawn({"/nowhere"}));
  }
  EXPECT_EQ(count(), before);
}

TEST_F(SpawnerTest, WithoutPidfdTheChildRunsAllTheSame) {
  kernel::pretend("pidfd_open");
  auto child = spawn({"sh", "-c", "exit 7"});
  kernel::pretend(nullptr);
  ASSERT_TRUE(child);
  EXPECT_EQ(child->pidfd, -1);
  siginfo_t info{};
  ASSERT_EQ(::waitid(P_PID, static_cast<id_t>(child->pid), &info, WEXITED | WNOWAIT), 0);
  EXPECT_EQ(reap(child->pid), (ExitStatus{.code = 7}));
}

TEST(ProcessTree, TheNameOfAProgramMayHoldParenthesesAndBlanks) {
  ProcessEntry entry;
  ASSERT_TRUE(parse_stat("42 (a) b (c) S 7 40 40 0 -1", entry));
  EXPECT_EQ(entry.pid, 42);
  EXPECT_EQ(entry.parent, 7);
  EXPECT_EQ(entry.group, 40);
  EXPECT_EQ(entry.state, 'S');
  EXPECT_FALSE(parse_stat("garbage", entry));
}

TEST(ProcessTree, FindsAllGenerationsInAnyOrderAndNoStranger) {
  std::vector<ProcessEntry> all{
      {5, 4, 5, 'S'}, {4, 2, 4, 'S'}, {9, 1, 9, 'S'}, {6, 5, 6, 'Z'}, {7, 6, 7, 'S'}};
  std::vector<pid_t> found;
  for (const auto& entry : descendants_among(all, 2)) found.push_back(entry.pid);
  EXPECT_THAT(found, testing::UnorderedElementsAre(4, 5, 7));
}

}  // namespace
}  // namespace dlaunch
