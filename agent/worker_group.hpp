// The workers of one round on this node, from their start until nothing of them is left: not the
// workers, not what they forked, not what escaped into sessions of its own.
//
// Stop path, the same for failure, restart, signal and success: a signal to each worker's session group,
// one grace period, then SIGKILL; 10 s after that what still lives is named as stuck. When a worker ends,
// the rest of its group is told to end at once. Adopted processes of other groups are ended when all
// local workers are gone.
//
// Workers are watched and reaped by pidfd, which become readable in the order of their ends, and by
// SIGCHLD where the kernel has none; adopted orphans are reaped on SIGCHLD.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "agent/console.hpp"
#include "agent/output_router.hpp"
#include "dlaunch/control/protocol.hpp"
#include "dlaunch/environment.hpp"
#include "dlaunch/job.hpp"
#include "dlaunch/layout.hpp"
#include "dlaunch/process.hpp"

namespace dlaunch {

class WorkerGroup {
 public:
  struct Events {
    // As control::WorkerExited says: at once, and again with its last words.
    std::function<void(control::WorkerExited)> exited;
    // Nothing of the round is left, or only the stuck ones that are named. Told once.
    std::function<void(std::vector<std::string> stuck)> gone;
  };

  // References are borrowed: they outlive the group. `log_base`: see plan_logs. The group itself must
  // live until `io` has run out: its handlers refer to it.
  WorkerGroup(boost::asio::io_context& io, Spawner& spawner, Console& console, const Job& job,
              const Environment& environment, Round round, std::string log_base, Events events);

  // Starts every worker. One that cannot be started is told as exited with an exec_error, and the ranks
  // after it are not tried.
  void start();
  // May be called again with a shorter grace.
  void stop(int signal, std::chrono::milliseconds grace);
  void kill_now() { stop(SIGKILL, std::chrono::milliseconds(0)); }
  // To each worker's pid alone: to the group it would end data loaders.
  void hand_on(int signal);
  bool over() const { return over_; }

 private:
  using Clock = std::chrono::steady_clock;
  using TimePoint = Clock::time_point;

  struct Worker {
    int local = 0;
    int rank = 0;
    pid_t pid = -1;
    std::optional<Launch> launch;  // until its exec is confirmed
    TimePoint started;
    std::unique_ptr<boost::asio::posix::stream_descriptor> pidfd;  // empty where the kernel has none
    std::unique_ptr<WorkerOutput> output;
    WorkerLogs logs;
    std::optional<ExitStatus> status;  // set once reaped
    TimePoint ended;
    bool was_stopped = false;                // it ended after we had told it to
    bool told_asleep = false;                // that somebody stopped it (SIGSTOP): said once
    bool told = false;                       // its last words have been told, or it has none
    TimePoint kill_rest = TimePoint::max();  // SIGKILL for what it left in its group

    bool alive() const { return pid > 0 && !status; }
  };

  bool start_one(int local);
  void confirm(Worker& worker);
  void could_not_start(Worker& worker, const Error& error);
  Result<> connect_output(Worker& worker, SpawnRequest& request, std::vector<int>& to_close);
  void watch(Worker& worker);
  void watch_children();
  void check(Worker& worker);
  void ended(Worker& worker, ExitStatus status);
  void output_finished(Worker& worker);
  control::WorkerExited word_about(const Worker& worker) const;
  void add_story(const Worker& worker, control::WorkerExited& word) const;
  void reap_orphans();
  void tell_of_stopped();
  void end_orphans();
  void kill_all_that_is_left();
  void settle();
  void arm();
  void timer_fired();
  void say_whom_we_wait_for();
  std::string name_of(const Worker& worker) const;
  std::string who_is_left() const;
  bool all_ended() const;

  boost::asio::io_context& io_;
  Spawner& spawner_;
  Console& console_;
  const Job& job_;
  const Environment& environment_;
  Round round_;
  std::string log_base_;
  Events events_;

  std::vector<std::unique_ptr<Worker>> workers_;
  boost::asio::steady_timer timer_;
  std::optional<TimePoint> armed_;  // what the timer waits for
  boost::asio::signal_set children_;
  bool started_ = false;
  bool over_ = false;
  std::optional<TimePoint> stop_asked_;
  TimePoint kill_at_ = TimePoint::max();     // the end of the grace
  TimePoint give_up_at_ = TimePoint::max();  // 10 s after SIGKILL
  TimePoint next_word_ = TimePoint::max();
  std::set<pid_t> asked_orphans_;  // got their SIGTERM
};

}  // namespace dlaunch
