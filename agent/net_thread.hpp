// The thread that owns the job's port: it accepts, tells control connections from store sessions by their
// first bytes, hands the former over and serves the latter. Nothing else of dlaunch waits for a socket here.
//
// All functions may be called by the main thread at any time; nothing is shared but what is posted and one
// atomic count. The thread has all signals blocked.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "dlaunch/result.hpp"

namespace dlaunch {

class NetThread {
 public:
  struct Config {
    // IPv4 and IPv6 literals to bind, all at one port. Empty: every address of the machine.
    std::vector<std::string> addresses;
    std::uint16_t port = 0;  // 0: any free one
    // Called on the net thread with a non-blocking socket (the callee owns it), the bytes read from it so
    // far (they begin with the magic) and the peer's address without its port.
    std::function<void(int fd, std::string first_bytes, std::string peer_address)> on_control;
    bool store = false;  // false: everything but control connections is closed
    // For who stops in the middle of the magic; without a store, for who says nothing as well.
    std::chrono::milliseconds undecided_limit{10'000};
  };

  // Binds and listens before it returns: a port that is taken is an error here (Errc::refused), which names
  // its holder if /proc shows it. Raises the soft limit of open files to the hard one.
  static Result<std::unique_ptr<NetThread>> open(Config config);
  ~NetThread();  // stops and joins; sessions are closed

  std::uint16_t port() const;

  // A new round: closes all store sessions and drops all keys, then calls `done` on the net thread.
  void reset_store(std::function<void()> done);

  // Has a worker asked the store anything since the last reset?
  bool store_was_used() const;

  // Off also closes the sessions and drops the keys.
  void store_enabled(bool on);

 private:
  class Loop;
  explicit NetThread(std::unique_ptr<Loop> loop);
  std::unique_ptr<Loop> loop_;
};

}  // namespace dlaunch
