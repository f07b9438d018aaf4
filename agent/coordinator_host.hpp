// Node 0's side of the control channel: runs the coordinator on the main thread, carries its actions to
// sockets, the store and node 0's own agent, and its time to it. Decides nothing.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "agent/coordinator.hpp"
#include "agent/net_thread.hpp"
#include "dlaunch/control/session.hpp"
#include "dlaunch/held_port.hpp"

namespace dlaunch {

class CoordinatorHost {
 public:
  struct Events {
    std::function<void(control::Message)> to_own_agent;  // always from the event loop
    std::function<void()> over;                          // every agent has been told
  };

  // Must live until `io` has run out.
  CoordinatorHost(boost::asio::io_context& io, const Job& job, Events events);

  // Listens where the job needs it. Errors: the port is taken, and by whom.
  Result<> open();
  // The port that was bound; 0 if nothing listens.
  std::uint16_t port() const { return net_ ? net_->port() : 0; }

  void from_own_agent(const control::Message& message);
  void give_up(const std::string& reason);

 private:
  using Clock = std::chrono::steady_clock;

  void accept(int fd, std::string first_bytes);
  void perform(Actions actions);
  void perform_one(const SendTo& action);
  void perform_one(const Drop& action);
  void perform_one(const Say& action);
  void perform_one(const PrepareRound& action);
  void perform_one(const Over& action);
  void close_silent();
  void arm();

  boost::asio::io_context& io_;
  const Job& job_;
  Events events_;
  Coordinator coordinator_;
  std::unique_ptr<NetThread> net_;
  std::optional<HeldPort> store_port_;
  std::map<Peer, std::unique_ptr<control::Session>> sessions_;
  std::map<Peer, Clock::time_point> silent_;  // connected then, and no message yet
  Peer next_peer_ = 1;
  boost::asio::steady_timer timer_;
  std::optional<Clock::time_point> armed_;  // what the timer waits for
  bool over_ = false;
};

}  // namespace dlaunch
