#include "agent/coordinator.hpp"

#include <algorithm>

#include "dlaunch/text.hpp"

namespace dlaunch {

using namespace std::chrono_literals;
using namespace control;

namespace {

constexpr auto kFirstWaitingWord = 3s;
constexpr auto kNextWaitingWord = 10s;
constexpr auto kProbeTime = 2s;
constexpr auto kByeTime = 2s;
constexpr auto kSignalMayFollow = 500ms;
// After the grace comes SIGKILL, and an agent gives up on a process 10 s later.
constexpr auto kAfterGrace = 15s;
constexpr auto kLateTimer = 1s;

std::string plural(const std::vector<int>& nodes) {
  return (nodes.size() == 1 ? "node " : "nodes ") + rank_list(nodes);
}

}  // namespace

Coordinator::Coordinator(const Job& job, TimePoint now)
    : job_(job),
      copies_(independent_copies(job) ? job.copies->count : 0),
      join_deadline_(now + job.join_timeout),
      last_tick_(now) {}

// --- who is there ---

std::vector<int> Coordinator::missing() const {
  std::set<int> taken;
  for (const auto& [peer, member] : members_) taken.insert(member.node);
  std::vector<int> missing;
  for (int node = 0; node < job_.nnodes; ++node) {
    if (!taken.count(node)) missing.push_back(node);
  }
  return missing;
}

std::vector<std::string> Coordinator::here() const {
  std::map<int, std::string> by_node;
  for (const auto& [peer, member] : members_) by_node[member.node] = member.hello.host;
  std::vector<std::string> here;
  for (const auto& [node, host] : by_node) here.push_back(std::to_string(node) + " " + host);
  return here;
}

Coordinator::Member* Coordinator::at_node(int node, Peer* peer) {
  for (auto& [id, member] : members_) {
    if (member.node != node) continue;
    if (peer) *peer = id;
    return &member;
  }
  return nullptr;
}

std::string Coordinator::node_name(const Member& member) const {
  return "node " + std::to_string(member.node) + " (" + member.hello.host + ")";
}

void Coordinator::send_all(const Message& message) {
  for (const auto& [peer, member] : members_) send(peer, message);
}

// --- joining ---

std::string Coordinator::objection(const Hello& hello) const {
  if (hello.protocol != kProtocol) {
    return "control protocol " + std::to_string(hello.protocol) + " of dlaunch " + hello.version +
           " there, protocol " + std::to_string(kProtocol) +
           " of dlaunch " DLAUNCH_VERSION " on node 0: run the same dlaunch on all nodes";
  }
  std::string run_id = visible(job_.run_id);
  if (hello.run_id != run_id) {
    return "run id '" + hello.run_id + "' there, '" + run_id +
           "' on node 0 (--rdzv_id): another job has this port";
  }
  if (hello.nnodes != job_.nnodes) {
    return "--nnodes " + std::to_string(hello.nnodes) + " there, --nnodes " + std::to_string(job_.nnodes) +
           " on node 0: give the same number on every node";
  }
  if (hello.node_rank >= job_.nnodes)
    return "node rank " + std::to_string(hello.node_rank) + " of " + std::to_string(job_.nnodes) + " nodes";
  if (hello.node_rank < 0 && job_.node_rank) {
    return "it asks for a node rank to be assigned, node 0 was given --node_rank: type the same line on "
           "every node";
  }
  if (hello.node_rank >= 0 && !job_.node_rank) {
    return "it was given --node_rank " + std::to_string(hello.node_rank) +
           ", node 0 assigns the ranks (--rdzv_backend=c10d): type the same line on every node";
  }
  return "";
}

void Coordinator::refuse(Peer peer, const Hello& hello, std::string reason, bool retry) {
  if (!retry && peer != 0) {
    out_.push_back(Say{"refused " + hello.host + " (pid " + std::to_string(hello.pid) + "): " + reason});
  }
  send(peer, Refused{std::move(reason), retry});
  out_.push_back(Drop{peer});
}

void Coordinator::hello(Peer peer, Hello hello, TimePoint now) {
  hello.host = visible(hello.host);
  hello.version = visible(hello.version);
  hello.run_id = visible(hello.run_id);
  std::string reason = objection(hello);
  if (!reason.empty()) return refuse(peer, hello, reason);
  if (phase_ == Phase::finishing || phase_ == Phase::over)
    return refuse(peer, hello, "the job is just ending", true);
  if (phase_ != Phase::joining) {
    return refuse(peer, hello,
                  "the job is complete and runs already (" + std::to_string(job_.nnodes) + " nodes)");
  }
  if (hello.node_rank < 0) {
    auto free = missing();
    // The host is node 0, whoever comes first.
    int node = peer == 0 ? 0 : [&] {
      for (int candidate : free) {
        if (candidate != 0) return candidate;
      }
      return -1;
    }();
    if (node < 0)
      return refuse(peer, hello, "the job is full: all " + std::to_string(job_.nnodes) + " nodes have come");
    return admit(peer, hello, node, now);
  }
  Peer first = -1;
  if (!at_node(hello.node_rank, &first)) return admit(peer, hello, hello.node_rank, now);
  if (first == 0) {
    return refuse(peer, hello,
                  "node rank " + std::to_string(hello.node_rank) + " already runs on " +
                      members_.at(0).hello.host + " (pid " + std::to_string(members_.at(0).hello.pid) +
                      "): give every node its own --node_rank");
  }
  if (probes_.count(hello.node_rank))
    return refuse(peer, hello, "node rank " + std::to_string(hello.node_rank) + " is claimed twice already",
                  true);
  // A pod may have been started anew while its old connection looks alive: ask the first one.
  probes_[hello.node_rank] = Probe{peer, hello, now + kProbeTime};
  send(first, Ping{static_cast<std::uint64_t>(now.time_since_epoch().count())});
}

void Coordinator::settle_probe(int node, bool first_lives, TimePoint now) {
  auto found = probes_.find(node);
  if (found == probes_.end()) return;
  Probe probe = std::move(found->second);
  probes_.erase(found);
  Peer first = -1;
  Member* member = at_node(node, &first);
  if (first_lives && member) {
    std::string where = member->hello.host + " (pid " + std::to_string(member->hello.pid) + ")";
    refuse(probe.claimant, probe.hello,
           "node rank " + std::to_string(node) + " already runs on " + where +
               ": give every node its own --node_rank");
    return start_if_complete();
  }
  if (member) {
    members_.erase(first);
    out_.push_back(Drop{first});
  }
  admit(probe.claimant, probe.hello, node, now);
}

void Coordinator::admit(Peer peer, const Hello& hello, int node, TimePoint now) {
  Member member;
  member.hello = hello;
  member.node = node;
  member.joined = member.last_heard = member.last_ping = now;
  member.next_waiting_word = now + kFirstWaitingWord;
  members_[peer] = std::move(member);
  send(peer, Welcome{node, std::chrono::milliseconds(job_.heartbeat_timeout).count()});
  start_if_complete();
}

void Coordinator::start_if_complete() {
  // A claim that is still being looked into may replace a node that only seems to be here.
  if (phase_ != Phase::joining || !complete() || !probes_.empty()) return;
  layout_.nodes.resize(static_cast<std::size_t>(job_.nnodes));
  for (const auto& [peer, member] : members_) {
    layout_.nodes[static_cast<std::size_t>(member.node)] = {member.hello.host, member.hello.nproc,
                                                            member.hello.role};
  }
  phase_ = Phase::preparing;
  out_.push_back(PrepareRound{++round_});
}

// --- a round ---

Actions Coordinator::round_ready(std::uint16_t master_port, TimePoint now) {
  if (phase_ == Phase::preparing) {
    phase_ = Phase::running;
    verdicts_.clear();
    for (auto& [peer, member] : members_) {
      member.spawned = member.gone = false;
      member.last_heard = now;
    }
    send_all(Start{round_, layout_, master_port, job_.store, notice_});
  }
  return std::exchange(out_, {});
}

void Coordinator::worker_exited(Peer, Member& member, const WorkerExited& message, TimePoint now) {
  if (message.round != round_ || (phase_ != Phase::running && phase_ != Phase::stopping)) return;
  WorkerEnd end;
  end.exited = message;
  end.node = member.node;
  end.error = member.rtt / 2;
  end.failed_at = now - std::chrono::microseconds(message.age_us) - member.rtt / 2;
  bool had_failed = verdicts_.failed();
  verdicts_.add(std::move(end));
  if (had_failed || !verdicts_.failed()) return;
  if (verdicts_.may_be_a_stop()) judge_not_before_ = now + kSignalMayFollow;
  bool keep_going = job_.copies && job_.copies->keep_going;
  if (phase_ == Phase::running && !keep_going) stop(15, verdicts_.headline(layout_, copies_), now);
}

void Coordinator::stop(int signal, std::string reason, TimePoint now) {
  if (phase_ == Phase::finishing || phase_ == Phase::over) return;
  if (phase_ == Phase::joining || phase_ == Phase::preparing) {
    phase_ = Phase::stopping;
    for (auto& [peer, member] : members_) member.gone = true;  // no worker has been started
    return judge(now);
  }
  phase_ = Phase::stopping;
  phase_deadline_ = now + job_.shutdown_timeout + kAfterGrace;
  auto grace = std::chrono::duration_cast<std::chrono::milliseconds>(job_.shutdown_timeout);
  for (const auto& [peer, member] : members_) {
    if (!member.gone) send(peer, Stop{round_, signal, grace.count(), reason});
  }
  judge(now);
}

void Coordinator::node_gone(Member& member, TimePoint now) {
  member.gone = true;
  judge(now);
}

// Called whenever something changed that the end of a round may have waited for.
void Coordinator::judge(TimePoint now) {
  if (phase_ != Phase::running && phase_ != Phase::stopping) return;
  for (const auto& [peer, member] : members_) {
    if (!member.gone) return;
  }
  if (stop_signal_ == 0 && lost_.empty() && stuck_.empty() && now < judge_not_before_) return;
  if (stop_signal_) {
    Finish end{128 + stop_signal_, stop_signal_, "dlaunch: job stopped by " + stopped_by_ + "\n"};
    if (failed_before_signal_) {
      JobReport report = verdicts_.report(layout_, copies_);
      report.notes.push_back("while the others were ended, the job was stopped by " + stopped_by_);
      end.report = render(report);
    }
    return finish(std::move(end), now);
  }
  if (!lost_.empty()) {
    JobReport report = verdicts_.report(layout_, copies_);
    report.nnodes = job_.nnodes;
    report.first.reset();
    report.reason = lost_;
    return fail(std::move(report), 125, now);
  }
  if (!verdicts_.failed()) return finish(Finish{}, now);
  bool restart = restarts_ < job_.max_restarts && stuck_.empty() && !verdicts_.could_not_start();
  if (restart) {
    ++restarts_;
    notice_ = verdicts_.headline(layout_, copies_) + "; restart " + std::to_string(restarts_) + " of " +
              std::to_string(job_.max_restarts);
    phase_ = Phase::preparing;
    phase_deadline_ = TimePoint::max();
    judge_not_before_ = TimePoint::min();
    out_.push_back(PrepareRound{++round_});
    return;
  }
  JobReport report = verdicts_.report(layout_, copies_);
  for (const auto& who : stuck_) report.notes.push_back("could not be ended: " + who);
  if (restarts_ > 0)
    report.notes.push_back("after " + std::to_string(restarts_) + " of " + std::to_string(job_.max_restarts) +
                           " restarts");
  fail(std::move(report), verdicts_.exit_code(), now);
}

// --- the end ---

void Coordinator::fail(JobReport report, int exit_code, TimePoint now) {
  report.nnodes = job_.nnodes;
  finish(Finish{exit_code, 0, render(report)}, now);
}

void Coordinator::finish(Finish message, TimePoint now) {
  if (phase_ == Phase::finishing || phase_ == Phase::over) return;
  phase_ = Phase::finishing;
  phase_deadline_ = now + kByeTime;
  finish_ = message;
  send_all(message);
  for (auto& [node, probe] : probes_) refuse(probe.claimant, probe.hello, "the job is just ending", true);
  probes_.clear();
  check_over(now);
}

void Coordinator::check_over(TimePoint now) {
  if (phase_ != Phase::finishing) return;
  bool all_said_bye = std::all_of(members_.begin(), members_.end(),
                                  [](const auto& entry) { return entry.first == 0 || entry.second.bye; });
  if (!all_said_bye && now < phase_deadline_) return;
  phase_ = Phase::over;
  phase_deadline_ = TimePoint::max();
  out_.push_back(Over{});
}

Actions Coordinator::give_up(const std::string& reason, TimePoint now) {
  if (lost_.empty()) lost_ = reason;
  if (phase_ == Phase::stopping) {
    judge(now);
  } else {
    stop(15, reason, now);
  }
  return std::exchange(out_, {});
}

void Coordinator::lose(Peer peer, const std::string& why, TimePoint now) {
  auto found = members_.find(peer);
  if (found == members_.end()) {
    // A claimant of a taken rank may leave before the first one has answered.
    std::erase_if(probes_, [&](const auto& entry) { return entry.second.claimant == peer; });
    return;
  }
  Member member = std::move(found->second);
  members_.erase(found);
  if (probes_.count(member.node)) return settle_probe(member.node, false, now);
  if (phase_ == Phase::joining) return;  // its place is free again
  if (phase_ == Phase::finishing || phase_ == Phase::over) return check_over(now);
  if (lost_.empty()) lost_ = node_name(member) + " lost: " + why;
  if (phase_ == Phase::stopping) return judge(now);
  stop(15, lost_, now);
}

Actions Coordinator::lost(Peer peer, const std::string& why, TimePoint now) {
  lose(peer, why, now);
  return std::exchange(out_, {});
}

void Coordinator::set_round_trip(Peer peer, std::chrono::microseconds rtt) {
  if (auto found = members_.find(peer); found != members_.end()) found->second.rtt = rtt;
}

Actions Coordinator::received(Peer peer, const Message& message, TimePoint now) {
  if (const auto* first = std::get_if<Hello>(&message)) {
    if (!members_.count(peer)) hello(peer, *first, now);
    return std::exchange(out_, {});
  }
  auto found = members_.find(peer);
  if (found == members_.end()) return std::exchange(out_, {});
  Member& member = found->second;
  member.last_heard = now;
  if (const auto* spawned = std::get_if<Spawned>(&message)) {
    if (spawned->round == round_) member.spawned = true;
  } else if (const auto* exited = std::get_if<WorkerExited>(&message)) {
    worker_exited(peer, member, *exited, now);
  } else if (const auto* done = std::get_if<Done>(&message)) {
    if (done->round == round_) node_gone(member, now);
  } else if (const auto* stopped = std::get_if<Stopped>(&message)) {
    if (stopped->round == round_) {
      for (const auto& who : stopped->stuck) stuck_.push_back(who + " on " + node_name(member));
      node_gone(member, now);
    }
  } else if (const auto* signalled = std::get_if<Signalled>(&message)) {
    bool second = !signalled_.insert(peer).second;
    if (second && phase_ == Phase::stopping) {
      for (const auto& [other, its] : members_) {
        if (other != peer && !its.gone) send(other, Stop{round_, 9, 0, "asked twice"});
      }
    } else if (stop_signal_ == 0) {
      stop_signal_ = signalled->signal;
      stopped_by_ = signal_name(stop_signal_) + (job_.nnodes > 1 ? " at " + node_name(member) : "");
      failed_before_signal_ = phase_ == Phase::stopping && verdicts_.failed() && !verdicts_.may_be_a_stop();
      if (phase_ == Phase::stopping) {
        judge(now);
      } else {
        stop(stop_signal_, stopped_by_, now);
      }
    }
  } else if (std::get_if<Pong>(&message)) {
    auto rtt = std::chrono::duration_cast<std::chrono::microseconds>(now - member.last_ping);
    if (!probes_.count(member.node)) member.rtt = rtt;
    settle_probe(member.node, true, now);
  } else if (const auto* bye = std::get_if<Bye>(&message)) {
    if (phase_ == Phase::finishing) {
      member.bye = true;
      check_over(now);
    } else {
      lose(peer, bye->reason.empty() ? "it left" : visible(bye->reason), now);
    }
  }
  return std::exchange(out_, {});
}

// --- time ---

Coordinator::Duration Coordinator::silence_allowed(const Member& member) const {
  // Starting workers from a slow file system keeps an agent busy.
  bool starting = phase_ == Phase::running && !member.spawned;
  return starting ? std::max<Duration>(job_.join_timeout, job_.heartbeat_timeout)
                  : Duration(job_.heartbeat_timeout);
}

Actions Coordinator::tick(TimePoint now, TimePoint due) {
  // Our own timer was late: this machine slept, not the others. All deadlines start anew.
  if (now - due > kLateTimer) {
    for (auto& [peer, member] : members_) member.last_heard = now;
  }
  last_tick_ = now;
  if (phase_ == Phase::joining) {
    if (now >= join_deadline_) {
      JobReport report;
      report.reason = "timed out after " + std::to_string(job_.join_timeout.count()) +
                      " s (--join_timeout) waiting for " + plural(missing());
      fail(std::move(report), 124, now);
      return std::exchange(out_, {});
    }
    auto left = std::chrono::duration_cast<std::chrono::milliseconds>(join_deadline_ - now);
    for (auto& [peer, member] : members_) {
      if (now < member.next_waiting_word) continue;
      member.next_waiting_word = now + kNextWaitingWord;
      send(peer, Waiting{missing(), here(), left.count()});
    }
    std::vector<int> unanswered;
    for (const auto& [node, probe] : probes_) {
      if (now >= probe.deadline) unanswered.push_back(node);
    }
    for (int node : unanswered) settle_probe(node, false, now);
  }
  auto ping_every = std::min<Duration>(5s, Duration(job_.heartbeat_timeout) / 3);
  std::vector<Peer> silent;
  for (auto& [peer, member] : members_) {
    if (peer == 0) continue;
    if (now - member.last_heard >= silence_allowed(member)) {
      silent.push_back(peer);
    } else if (now - member.last_ping >= ping_every) {
      member.last_ping = now;
      send(peer, Ping{static_cast<std::uint64_t>(now.time_since_epoch().count())});
    }
  }
  for (Peer peer : silent) {
    auto silence = std::chrono::duration_cast<std::chrono::seconds>(silence_allowed(members_.at(peer)));
    out_.push_back(Drop{peer});
    lose(peer, "nothing heard for " + std::to_string(silence.count()) + " s (--heartbeat_timeout)", now);
  }
  if (phase_ == Phase::stopping) {
    if (now >= phase_deadline_) {
      std::vector<Peer> mute;
      for (const auto& [peer, member] : members_) {
        if (!member.gone && peer != 0) mute.push_back(peer);
      }
      for (Peer peer : mute) {
        out_.push_back(Drop{peer});
        lose(peer, "it did not say that its workers are gone", now);
      }
      phase_deadline_ = TimePoint::max();
    }
    judge(now);
  } else if (phase_ == Phase::running) {
    judge(now);
  }
  check_over(now);
  return std::exchange(out_, {});
}

Coordinator::TimePoint Coordinator::next_tick() const {
  TimePoint next = last_tick_ + 5s;
  if (phase_ == Phase::joining) {
    next = std::min(next, join_deadline_);
    for (const auto& [peer, member] : members_) next = std::min(next, member.next_waiting_word);
    for (const auto& [node, probe] : probes_) next = std::min(next, probe.deadline);
  }
  auto ping_every = std::min<Duration>(5s, Duration(job_.heartbeat_timeout) / 3);
  for (const auto& [peer, member] : members_) {
    if (peer == 0) continue;
    next = std::min({next, member.last_ping + ping_every, member.last_heard + silence_allowed(member)});
  }
  if (judge_not_before_ > last_tick_) next = std::min(next, judge_not_before_);
  return std::min(next, phase_deadline_);
}

}  // namespace dlaunch
