// The part of node 0's agent that all agents report to: who is there, when a round starts, when it is
// stopped, and how the job ends. A state machine: it knows no sockets, clocks or pids; events and the
// time go in, actions come out.
//
//   joining ──all in──> preparing ──store empty──> running ──all nodes Done──> finishing (0)
//      │                    ^                        │ first failure / lost node / signal
//      │ time-out           └──── restarts left ──── stopping ──all Stopped──> finishing
//      └──> finishing (124)                                finishing ──Byes, at most 2 s──> over
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "agent/verdict.hpp"
#include "dlaunch/control/protocol.hpp"
#include "dlaunch/job.hpp"
#include "dlaunch/layout.hpp"

namespace dlaunch {

using Peer = int;  // a connection; 0 is node 0's own agent, never lost

struct SendTo {
  Peer peer;
  control::Message message;
};
struct Drop {  // close the connection once what was sent has left
  Peer peer;
};
struct Say {  // one sentence to whoever looks at node 0
  std::string sentence;
};
struct PrepareRound {  // empty the store, find ports, then call round_ready
  int round;
};
struct Over {};  // every agent has been told and has answered, or the wait for it ran out

using Action = std::variant<SendTo, Drop, Say, PrepareRound, Over>;
using Actions = std::vector<Action>;

class Coordinator {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;
  using Duration = std::chrono::steady_clock::duration;

  Coordinator(const Job& job, TimePoint now);

  Actions received(Peer peer, const control::Message& message, TimePoint now);
  // A connection ended; `why` completes "node 1 (gpu-b) lost: …".
  Actions lost(Peer peer, const std::string& why, TimePoint now);
  // The answer to PrepareRound.
  Actions round_ready(std::uint16_t master_port, TimePoint now);
  // dlaunch itself cannot go on (no port for a round, its guard was killed): all nodes stop, 125.
  Actions give_up(const std::string& reason, TimePoint now);
  // `due`: when the caller had meant to come.
  Actions tick(TimePoint now, TimePoint due);
  // When tick is wanted next. There always is such a time: pings, waits.
  TimePoint next_tick() const;

  // Round-trip time of a peer, for its clock error.
  void set_round_trip(Peer peer, std::chrono::microseconds rtt);

 private:
  enum class Phase { joining, preparing, running, stopping, finishing, over };

  struct Member {
    control::Hello hello;
    int node = -1;
    TimePoint joined;
    TimePoint next_waiting_word;
    TimePoint last_heard;
    TimePoint last_ping;
    std::chrono::microseconds rtt{};
    bool spawned = false;  // in this round
    bool gone = false;     // its workers of this round are gone: Done or Stopped
    bool bye = false;
  };
  struct Probe {  // a second claim on a node rank, while the first is asked whether it lives
    Peer claimant;
    control::Hello hello;
    TimePoint deadline;
  };

  void hello(Peer peer, control::Hello hello, TimePoint now);
  std::string objection(const control::Hello& hello) const;
  void admit(Peer peer, const control::Hello& hello, int node, TimePoint now);
  void refuse(Peer peer, const control::Hello& hello, std::string reason, bool retry = false);
  void settle_probe(int node, bool first_lives, TimePoint now);
  void start_if_complete();
  void worker_exited(Peer peer, Member& member, const control::WorkerExited& message, TimePoint now);
  void node_gone(Member& member, TimePoint now);
  void stop(int signal, std::string reason, TimePoint now);
  void judge(TimePoint now);
  void finish(control::Finish message, TimePoint now);
  void fail(JobReport report, int exit_code, TimePoint now);
  void check_over(TimePoint now);
  void lose(Peer peer, const std::string& why, TimePoint now);

  void send(Peer peer, control::Message message) { out_.push_back(SendTo{peer, std::move(message)}); }
  void send_all(const control::Message& message);
  Member* at_node(int node, Peer* peer = nullptr);
  std::vector<int> missing() const;
  std::vector<std::string> here() const;
  std::string node_name(const Member& member) const;
  bool complete() const { return missing().empty(); }
  Duration silence_allowed(const Member& member) const;

  const Job& job_;
  int copies_ = 0;
  Phase phase_ = Phase::joining;
  TimePoint join_deadline_;
  TimePoint phase_deadline_ = TimePoint::max();    // stopping: stuck; finishing: no more Byes
  TimePoint judge_not_before_ = TimePoint::min();  // a signal for the whole job may still come
  TimePoint last_tick_;

  std::map<Peer, Member> members_;
  std::map<int, Probe> probes_;  // by node rank
  Layout layout_;
  int round_ = -1;
  int restarts_ = 0;
  Verdicts verdicts_;
  int stop_signal_ = 0;  // the job was told to stop by this signal
  std::string stopped_by_;
  bool failed_before_signal_ = false;
  std::set<Peer> signalled_;  // once each: the second time means now
  std::string lost_;          // "node 1 (gpu-b) lost: …"
  std::vector<std::string> stuck_;
  std::string notice_;
  control::Finish finish_;
  Actions out_;
};

}  // namespace dlaunch
