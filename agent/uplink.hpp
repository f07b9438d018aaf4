// The way of a node other than 0 to the coordinator: looks the address up, connects, and tries both
// again until --join_timeout, since node 0 may come later and its name later still. Says what it waits
// for after 3 s and then every 10 s. Once welcomed, a lost connection is final.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "dlaunch/control/session.hpp"
#include "dlaunch/job.hpp"
#include "dlaunch/resolver.hpp"

namespace dlaunch {

class Uplink {
 public:
  struct Events {
    // The meeting point's addresses, before each try: true if this node has become the host itself.
    std::function<bool(const Addresses&)> looked_up;
    std::function<void(control::Message)> message;               // all but Ping, Refused with retry
    std::function<void(int exit_code, std::string why)> failed;  // told once: 124, 125, or 2 if refused
  };

  // Must live until `io` has run out.
  Uplink(boost::asio::io_context& io, const Job& job, Events events);

  // `hello.addresses` and the rest are sent as they are.
  void start(control::Hello hello);
  void send(const control::Message& message);
  // Says Bye and ends the connection; nothing is told afterwards.
  void leave(std::string reason);
  bool welcomed() const { return welcomed_; }

 private:
  using Clock = std::chrono::steady_clock;

  void look_up();
  void connect(Addresses addresses, std::size_t index);
  void connected();
  void received(control::Message message);
  void ended(std::string why);
  void try_again(std::string why);
  void fail(int exit_code, std::string why);
  void watch_time();
  std::string where() const;

  boost::asio::io_context& io_;
  const Job& job_;
  Events events_;
  control::Hello hello_;
  Resolver resolver_;
  boost::asio::ip::tcp::socket socket_;
  std::vector<std::unique_ptr<control::Session>> sessions_;  // the last is the current
  boost::asio::steady_timer pause_;                          // between tries
  boost::asio::steady_timer try_limit_;                      // of one connect
  boost::asio::steady_timer watch_;                          // waiting words, silence, join time-out
  Clock::time_point deadline_;
  Clock::time_point next_word_;
  Clock::time_point last_heard_;
  Clock::time_point watch_expected_;
  std::chrono::milliseconds heartbeat_{30000};
  std::chrono::milliseconds silence_{30000};  // tolerated now
  std::string trouble_ = "no answer yet";
  bool welcomed_ = false;
  bool over_ = false;
};

// "14 min 50 s", "9 s"
std::string time_left(std::chrono::steady_clock::duration left);

}  // namespace dlaunch
