#include "agent/coordinator.hpp"

#include <gmock/gmock.h>
#include <signal.h>

namespace dlaunch {
namespace {

using namespace std::chrono_literals;
using namespace control;
using testing::HasSubstr;

Job job_of(int nnodes) {
  Job job;
  job.nnodes = nnodes;
  job.join_timeout = 60s;
  job.heartbeat_timeout = 30s;
  job.shutdown_timeout = 30s;
  return job;
}

Hello hello_from(int node, int nnodes) {
  Hello hello;
  hello.run_id = "none";
  hello.node_rank = node;
  hello.nnodes = nnodes;
  hello.nproc = 2;
  hello.host = "host" + std::to_string(node);
  hello.pid = 1000 + node;
  return hello;
}

// A coordinator, its clock, and what it did last.
class Table {
 public:
  explicit Table(Job job) : job_(std::move(job)), coordinator_(job_, now_) {}

  void say(Peer peer, Message message) { keep(coordinator_.received(peer, message, now_)); }
  void lose(Peer peer) { keep(coordinator_.lost(peer, "connection closed", now_)); }
  void ready() { keep(coordinator_.round_ready(29500, now_)); }
  void give_up(const std::string& why) { keep(coordinator_.give_up(why, now_)); }
  // Lets time pass in the steps that the coordinator asks for.
  void pass(std::chrono::steady_clock::duration time) {
    Actions all;
    auto end = now_ + time;
    while (coordinator_.next_tick() <= end) {
      now_ = std::max(now_, coordinator_.next_tick());
      for (auto& action : coordinator_.tick(now_, now_)) all.push_back(std::move(action));
    }
    now_ = end;
    keep(std::move(all));
  }
  void join_all() {
    for (int node = 0; node < job_.nnodes; ++node) say(node, hello_from(node, job_.nnodes));
    ready();
  }
  void fail(Peer peer, int rank, ExitStatus status, int round = 0) {
    WorkerExited word;
    word.round = round;
    word.rank = rank;
    word.local = rank % 2;
    word.status = status;
    say(peer, word);
  }

  template <class M>
  const M* sent_to(Peer peer) const {
    for (const auto& action : last_) {
      const auto* send = std::get_if<SendTo>(&action);
      if (send && send->peer == peer) {
        if (const auto* message = std::get_if<M>(&send->message)) return message;
      }
    }
    return nullptr;
  }
  template <class A>
  bool did() const {
    return std::any_of(last_.begin(), last_.end(),
                       [](const auto& action) { return std::holds_alternative<A>(action); });
  }
  bool dropped(Peer peer) const {
    return std::any_of(last_.begin(), last_.end(), [&](const auto& action) {
      const auto* drop = std::get_if<Drop>(&action);
      return drop && drop->peer == peer;
    });
  }

 private:
  void keep(Actions actions) { last_ = std::move(actions); }

  Job job_;
  std::chrono::steady_clock::time_point now_ = std::chrono::steady_clock::time_point{} + 1h;
  Coordinator coordinator_;
  Actions last_;
};

TEST(Coordinator, StartsARoundWhenAllNodesAreInAndTheStoreIsReady) {
  Table table(job_of(2));
  table.say(0, hello_from(0, 2));
  EXPECT_FALSE(table.did<PrepareRound>());
  table.say(1, hello_from(1, 2));
  EXPECT_TRUE(table.did<PrepareRound>());
  EXPECT_EQ(table.sent_to<Start>(0), nullptr);
  table.ready();
  ASSERT_NE(table.sent_to<Start>(0), nullptr);
  EXPECT_EQ(table.sent_to<Start>(1)->layout.world_size(), 4);
  EXPECT_EQ(table.sent_to<Start>(1)->master_port, 29500);
}

TEST(Coordinator, SaysWhoIsMissingAfterThreeSecondsAndThenEveryTen) {
  Table table(job_of(3));
  table.say(0, hello_from(0, 3));
  table.say(2, hello_from(2, 3));
  table.pass(2s);
  EXPECT_EQ(table.sent_to<Waiting>(2), nullptr);
  table.pass(1s);
  ASSERT_NE(table.sent_to<Waiting>(2), nullptr);
  EXPECT_THAT(table.sent_to<Waiting>(2)->missing, testing::ElementsAre(1));
  EXPECT_THAT(table.sent_to<Waiting>(2)->here, testing::ElementsAre("0 host0", "2 host2"));
  table.pass(9s);
  EXPECT_EQ(table.sent_to<Waiting>(2), nullptr);
  table.pass(1s);
  EXPECT_NE(table.sent_to<Waiting>(2), nullptr);
}

TEST(Coordinator, EndsWith124AndNamesTheMissingNodeWhenTheJoinTimeIsOver) {
  Table table(job_of(2));
  table.say(0, hello_from(0, 2));
  table.pass(60s);
  ASSERT_NE(table.sent_to<Finish>(0), nullptr);
  EXPECT_EQ(table.sent_to<Finish>(0)->exit_code, 124);
  EXPECT_THAT(table.sent_to<Finish>(0)->report,
              HasSubstr("timed out after 60 s (--join_timeout) waiting for node 1"));
}

TEST(Coordinator, RefusesAnotherNumberOfNodes) {
  Table table(job_of(2));
  table.say(0, hello_from(0, 2));
  table.say(1, hello_from(1, 3));
  ASSERT_NE(table.sent_to<Refused>(1), nullptr);
  EXPECT_THAT(table.sent_to<Refused>(1)->reason, HasSubstr("--nnodes 3 there, --nnodes 2 on node 0"));
  EXPECT_FALSE(table.sent_to<Refused>(1)->retry);
  EXPECT_TRUE(table.dropped(1));
}

TEST(Coordinator, RefusesAnotherRunId) {
  Table table(job_of(2));
  table.say(0, hello_from(0, 2));
  auto stranger = hello_from(1, 2);
  stranger.run_id = "other";
  table.say(1, stranger);
  EXPECT_THAT(table.sent_to<Refused>(1)->reason, HasSubstr("run id 'other'"));
}

TEST(Coordinator, RefusesASecondNodeOfOneRankWhenTheFirstAnswers) {
  Table table(job_of(3));
  table.say(0, hello_from(0, 3));
  table.say(1, hello_from(1, 3));
  table.say(2, hello_from(1, 3));
  EXPECT_NE(table.sent_to<Ping>(1), nullptr);
  EXPECT_EQ(table.sent_to<Refused>(2), nullptr);
  table.say(1, Pong{});
  ASSERT_NE(table.sent_to<Refused>(2), nullptr);
  EXPECT_THAT(table.sent_to<Refused>(2)->reason, HasSubstr("node rank 1 already runs on host1 (pid 1001)"));
}

TEST(Coordinator, ReplacesADeadNodeOfTheSameRank) {
  Table table(job_of(3));
  table.say(0, hello_from(0, 3));
  table.say(1, hello_from(1, 3));
  table.say(2, hello_from(1, 3));
  table.pass(2s);  // no answer
  EXPECT_NE(table.sent_to<Welcome>(2), nullptr);
  EXPECT_TRUE(table.dropped(1));
}

TEST(Coordinator, DoesNotStartWithANodeWhoseRankIsClaimedByAnother) {
  Table table(job_of(3));
  table.say(0, hello_from(0, 3));
  table.say(1, hello_from(1, 3));
  table.say(9, hello_from(1, 3));
  table.say(2, hello_from(2, 3));
  EXPECT_FALSE(table.did<PrepareRound>());
  table.pass(2s);  // the first does not answer
  EXPECT_TRUE(table.did<PrepareRound>());
  table.ready();
  EXPECT_NE(table.sent_to<Start>(9), nullptr);
  EXPECT_EQ(table.sent_to<Start>(1), nullptr);
}

TEST(Coordinator, AFailureBeforeASignalIsStillReported) {
  Table table(job_of(1));
  table.join_all();
  table.fail(0, 0, {.code = 3});
  table.say(0, Signalled{SIGINT});
  table.say(0, Stopped{0, {}});
  ASSERT_NE(table.sent_to<Finish>(0), nullptr);
  EXPECT_EQ(table.sent_to<Finish>(0)->signal, SIGINT);
  EXPECT_THAT(table.sent_to<Finish>(0)->report, HasSubstr("exited with code 3"));
  EXPECT_THAT(table.sent_to<Finish>(0)->report, HasSubstr("stopped by SIGINT"));
}

TEST(Coordinator, AssignsRanksInOrderOfArrivalAndFreesThoseOfNodesThatLeave) {
  Job job = job_of(3);
  job.node_rank.reset();
  Table table(job);
  auto any = hello_from(-1, 3);
  table.say(5, any);
  EXPECT_EQ(table.sent_to<Welcome>(5)->node_rank, 1);
  table.say(0, any);
  EXPECT_EQ(table.sent_to<Welcome>(0)->node_rank, 0);
  table.lose(5);
  table.say(7, any);
  EXPECT_EQ(table.sent_to<Welcome>(7)->node_rank, 1);
  table.say(8, any);
  EXPECT_EQ(table.sent_to<Welcome>(8)->node_rank, 2);
  table.say(9, any);
  EXPECT_NE(table.sent_to<Refused>(9), nullptr);
}

TEST(Coordinator, StopsAllNodesInTheSameTurnAsTheFirstFailure) {
  Table table(job_of(2));
  table.join_all();
  table.fail(1, 3, {.code = 3});
  ASSERT_NE(table.sent_to<Stop>(0), nullptr);
  ASSERT_NE(table.sent_to<Stop>(1), nullptr);
  EXPECT_EQ(table.sent_to<Stop>(0)->signal, SIGTERM);
  EXPECT_EQ(table.sent_to<Stop>(0)->grace_ms, 30000);
  table.say(1, Stopped{0, {}});
  EXPECT_EQ(table.sent_to<Finish>(0), nullptr);
  table.say(0, Stopped{0, {}});
  ASSERT_NE(table.sent_to<Finish>(0), nullptr);
  EXPECT_EQ(table.sent_to<Finish>(0)->exit_code, 3);
  EXPECT_EQ(table.sent_to<Finish>(1)->report, table.sent_to<Finish>(0)->report);
  EXPECT_FALSE(table.did<Over>());
  table.say(1, Bye{});
  EXPECT_TRUE(table.did<Over>());
}

TEST(Coordinator, WaitsForAByeForTwoSecondsAtMost) {
  Table table(job_of(2));
  table.join_all();
  table.say(0, Done{0});
  table.say(1, Done{0});
  EXPECT_EQ(table.sent_to<Finish>(1)->exit_code, 0);
  table.pass(1900ms);
  EXPECT_FALSE(table.did<Over>());
  table.pass(100ms);
  EXPECT_TRUE(table.did<Over>());
}

TEST(Coordinator, RestartsAllNodesOnlyWhenAllAreStoppedAndTheStoreIsEmpty) {
  Job job = job_of(2);
  job.max_restarts = 1;
  Table table(job);
  table.join_all();
  table.fail(0, 0, {.code = 9});
  table.say(0, Stopped{0, {}});
  EXPECT_FALSE(table.did<PrepareRound>());
  table.say(1, Stopped{0, {}});
  EXPECT_TRUE(table.did<PrepareRound>());
  EXPECT_EQ(table.sent_to<Start>(1), nullptr);
  table.ready();
  EXPECT_EQ(table.sent_to<Start>(1)->round, 1);
  EXPECT_THAT(table.sent_to<Start>(1)->notice, HasSubstr("exited with code 9; restart 1 of 1"));
  table.fail(1, 2, {.code = 8}, 1);
  table.say(0, Stopped{1, {}});
  table.say(1, Stopped{1, {}});
  EXPECT_EQ(table.sent_to<Finish>(0)->exit_code, 8);
}

TEST(Coordinator, KeepsTimeAfterARestart) {
  Job job = job_of(2);
  job.max_restarts = 1;
  Table table(job);
  table.join_all();
  table.fail(0, 0, {.code = 9});
  table.say(0, Stopped{0, {}});
  table.say(1, Stopped{0, {}});
  table.ready();
  table.say(1, Spawned{1});
  for (int i = 0; i < 30; ++i) {
    table.pass(4s);
    table.say(1, Pong{});
  }
  table.pass(6s);
  EXPECT_NE(table.sent_to<Ping>(1), nullptr);
  table.pass(26s);
  EXPECT_NE(table.sent_to<Stop>(0), nullptr) << "a silent node is found as in round 0";
}

TEST(Coordinator, ASecondSignalOfOneNodeKillsOnAll) {
  Table table(job_of(2));
  table.join_all();
  table.say(0, Signalled{SIGINT});
  table.say(1, Signalled{SIGINT});  // as batch systems do: to every node, once
  EXPECT_EQ(table.sent_to<Stop>(1), nullptr);
  table.say(0, Signalled{SIGINT});
  ASSERT_NE(table.sent_to<Stop>(1), nullptr);
  EXPECT_EQ(table.sent_to<Stop>(1)->signal, SIGKILL);
  EXPECT_EQ(table.sent_to<Stop>(1)->grace_ms, 0);
}

TEST(Coordinator, NeverRestartsAProgramThatCannotBeStarted) {
  Job job = job_of(1);
  job.max_restarts = 3;
  Table table(job);
  table.join_all();
  WorkerExited word;
  word.status.code = 127;
  word.exec_error = "'nope': No such file or directory";
  table.say(0, word);
  table.say(0, Stopped{0, {}});
  ASSERT_NE(table.sent_to<Finish>(0), nullptr);
  EXPECT_EQ(table.sent_to<Finish>(0)->exit_code, 127);
}

TEST(Coordinator, ALostNodeEndsTheJobWith125WithoutARestart) {
  Job job = job_of(3);
  job.max_restarts = 3;
  Table table(job);
  table.join_all();
  table.lose(1);
  EXPECT_NE(table.sent_to<Stop>(0), nullptr);
  EXPECT_NE(table.sent_to<Stop>(2), nullptr);
  table.say(0, Stopped{0, {}});
  table.say(2, Stopped{0, {}});
  ASSERT_NE(table.sent_to<Finish>(2), nullptr);
  EXPECT_EQ(table.sent_to<Finish>(2)->exit_code, 125);
  EXPECT_THAT(table.sent_to<Finish>(2)->report, HasSubstr("node 1 (host1) lost: connection closed"));
}

TEST(Coordinator, ASilentNodeIsLostAfterTheHeartbeatTime) {
  Table table(job_of(2));
  table.join_all();
  table.say(1, Spawned{0});
  table.pass(29s);
  EXPECT_EQ(table.sent_to<Stop>(0), nullptr);
  EXPECT_NE(table.sent_to<Ping>(1), nullptr);
  table.pass(2s);
  EXPECT_NE(table.sent_to<Stop>(0), nullptr);
  EXPECT_TRUE(table.dropped(1));
}

TEST(Coordinator, ANodeThatStartsItsWorkersMayBeSilentForTheJoinTime) {
  Table table(job_of(2));
  table.join_all();
  table.pass(59s);
  EXPECT_EQ(table.sent_to<Stop>(0), nullptr);
  table.pass(2s);
  EXPECT_NE(table.sent_to<Stop>(0), nullptr);
}

TEST(Coordinator, ANodeThatNeverSaysThatItsWorkersAreGoneIsLost) {
  Table table(job_of(2));
  table.join_all();
  table.fail(0, 0, {.code = 3});
  table.say(0, Stopped{0, {}});
  for (int i = 0; i < 45; ++i) {
    table.say(1, Pong{});
    table.pass(1s);
  }
  ASSERT_NE(table.sent_to<Finish>(0), nullptr);
  EXPECT_EQ(table.sent_to<Finish>(0)->exit_code, 125);
}

TEST(Coordinator, ASignalStopsAllNodesWithThatSignalAndIsNoFailure) {
  Job job = job_of(2);
  job.max_restarts = 3;
  Table table(job);
  table.join_all();
  table.say(1, Signalled{SIGINT});
  EXPECT_EQ(table.sent_to<Stop>(0)->signal, SIGINT);
  table.say(0, Stopped{0, {}});
  table.say(1, Stopped{0, {}});
  EXPECT_EQ(table.sent_to<Finish>(0)->signal, SIGINT);
  EXPECT_EQ(table.sent_to<Finish>(0)->exit_code, 130);
}

TEST(Coordinator, AWorkerKilledByAStopSignalIsNoFailureIfTheSignalComesForTheJobToo) {
  Job job = job_of(1);
  job.max_restarts = 3;
  Table table(job);
  table.join_all();
  table.fail(0, 0, {.signal = SIGTERM});
  table.say(0, Stopped{0, {}});
  EXPECT_FALSE(table.did<PrepareRound>());
  table.pass(400ms);
  EXPECT_FALSE(table.did<PrepareRound>());
  table.say(0, Signalled{SIGTERM});
  ASSERT_NE(table.sent_to<Finish>(0), nullptr);
  EXPECT_EQ(table.sent_to<Finish>(0)->signal, SIGTERM);
}

TEST(Coordinator, AWorkerKilledByAStopSignalAloneIsAFailureAfterHalfASecond) {
  Table table(job_of(1));
  table.join_all();
  table.fail(0, 0, {.signal = SIGTERM});
  table.say(0, Stopped{0, {}});
  EXPECT_EQ(table.sent_to<Finish>(0), nullptr);
  table.pass(500ms);
  ASSERT_NE(table.sent_to<Finish>(0), nullptr);
  EXPECT_EQ(table.sent_to<Finish>(0)->exit_code, 143);
}

TEST(Coordinator, StuckWorkersAreNamedAndNeverRestarted) {
  Job job = job_of(1);
  job.max_restarts = 3;
  Table table(job);
  table.join_all();
  table.fail(0, 0, {.code = 3});
  table.say(0, Stopped{0, {"rank 1 (pid 77), state D"}});
  ASSERT_NE(table.sent_to<Finish>(0), nullptr);
  EXPECT_THAT(table.sent_to<Finish>(0)->report, HasSubstr("rank 1 (pid 77), state D"));
}

TEST(Coordinator, CopiesGoOnWhenOneFailsAndTheCodeIsTheFirstFailures) {
  Job job = job_of(1);
  job.copies = Copies{.count = 3, .keep_going = true};
  Table table(job);
  table.join_all();
  table.fail(0, 1, {.code = 7});
  EXPECT_EQ(table.sent_to<Stop>(0), nullptr);
  table.fail(0, 2, {.code = 8});
  table.say(0, Done{0});
  ASSERT_NE(table.sent_to<Finish>(0), nullptr);
  EXPECT_EQ(table.sent_to<Finish>(0)->exit_code, 7);
  EXPECT_THAT(table.sent_to<Finish>(0)->report, HasSubstr("copy 1 of 3"));
  EXPECT_THAT(table.sent_to<Finish>(0)->report, HasSubstr("copy 2 of 3"));
}

TEST(Coordinator, TheHostsOwnLateTimerStartsAllDeadlinesAnew) {
  Table table(job_of(2));
  table.join_all();
  table.say(1, Spawned{0});
  table.pass(5s);
  // pass() ticks on time; a single late tick is what a machine that slept sees.
  Job job = job_of(2);
  auto now = std::chrono::steady_clock::time_point{} + 1h;
  Coordinator coordinator(job, now);
  coordinator.received(0, hello_from(0, 2), now);
  coordinator.received(1, hello_from(1, 2), now);
  coordinator.round_ready(1, now);
  coordinator.received(1, Spawned{0}, now);
  coordinator.tick(now, now);
  for (const auto& action : coordinator.tick(now + 10min, now + 5s)) {
    const auto* send = std::get_if<SendTo>(&action);
    EXPECT_FALSE(send && std::holds_alternative<Stop>(send->message));
  }
}

TEST(Coordinator, WhoComesToARunningJobIsRefusedForGoodAndToAnEndingOneMayTryAgain) {
  Table table(job_of(1));
  table.join_all();
  table.say(4, hello_from(0, 1));
  ASSERT_NE(table.sent_to<Refused>(4), nullptr);
  EXPECT_FALSE(table.sent_to<Refused>(4)->retry);
  table.say(0, Done{0});
  table.say(5, hello_from(0, 1));
  ASSERT_NE(table.sent_to<Refused>(5), nullptr);
  EXPECT_TRUE(table.sent_to<Refused>(5)->retry);
}

}  // namespace
}  // namespace dlaunch
