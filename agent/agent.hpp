// The part of a dlaunch that runs one node: meets the other nodes, starts and stops this node's workers
// as the coordinator says, hands on signals, and ends with a verdict for the guard.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "agent/console.hpp"
#include "agent/coordinator_host.hpp"
#include "agent/guard.hpp"
#include "agent/uplink.hpp"
#include "agent/worker_group.hpp"
#include "dlaunch/environment.hpp"
#include "dlaunch/job.hpp"
#include "dlaunch/process.hpp"
#include "dlaunch/signals.hpp"

namespace dlaunch {

class Agent {
 public:
  // References are borrowed. `log_base`: see plan_logs. `guard_line`: see guard().
  Agent(const Job& job, const Environment& environment, const SignalState& at_start, std::string log_base,
        int guard_line);

  Verdict run();

 private:
  using Clock = std::chrono::steady_clock;
  enum class Source { guard, own };  // a "second" signal counts one source only

  void meet();
  Result<> become_host();
  control::Hello hello() const;
  void tell(const control::Message& message);

  void received(control::Message message);
  void on(const control::Welcome& message);
  void on(const control::Waiting& message);
  void on(const control::Start& message);
  void on(const control::Stop& message);
  void on(const control::Finish& message);
  void on(const control::Refused& message);
  template <class Other>
  void on(const Other&) {}  // spoken by agents only

  void round_is_over(int round, std::vector<std::string> stuck);
  void link_failed(int exit_code, std::string why);
  void watch_guard();
  void watch_signals();
  void signalled(int signal, Source source);
  void guard_is_gone();
  void stop_alone(int exit_code, std::string reason);
  void end(Verdict verdict, std::string report);
  void end_in_a_hurry();

  WorkerGroup* workers() {
    return rounds_.empty() || rounds_.back()->over() ? nullptr : rounds_.back().get();
  }

  const Job& job_;
  const Environment& environment_;
  const SignalState& at_start_;
  std::string log_base_;

  boost::asio::io_context io_{1};
  Console console_;
  Spawner spawner_;
  boost::asio::posix::stream_descriptor guard_line_;
  boost::asio::signal_set signals_;
  std::unique_ptr<CoordinatorHost> host_;             // on the hosting node
  std::unique_ptr<Uplink> uplink_;                    // on the others
  std::vector<std::unique_ptr<WorkerGroup>> rounds_;  // the last is the current; handlers refer to all
  int round_ = -1;
  int node_ = -1;
  bool stop_told_ = false;          // in this round, by the coordinator
  std::optional<Verdict> verdict_;  // set once it is known; the end may still be awaited
  std::string report_;
  bool alone_ = false;  // no coordinator any more: end when the workers are gone
  int stop_signal_ = 0;
  std::optional<Clock::time_point> first_signal_[2];
  bool cannot_host_ = false;
  bool hurry_ = false;  // nobody may be there to read the console
  bool warned_of_loopback_ = false;
  bool ending_ = false;  // nothing is left but the console's queue
};

}  // namespace dlaunch
