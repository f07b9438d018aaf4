// Serves the store's table on sockets, in one thread: whoever runs the io_context owns all of this.
//
// A session is read as bytes come and answered by a direct write; only what the socket does not take is
// queued, and a client whose answers are queued is not read until it has taken them. A session is never
// closed for being silent: clients of PyTorch 1.9 to 2.0 hold a second, silent connection for life. It is
// closed when its client closes it, breaks the protocol or a limit, or at reset(). No peer is looked up.
//
// The sessions' sockets lie in an epoll set of their own, which Asio watches as one descriptor. With one
// asynchronous read per request instead, the read that finds nothing after each answer and the upkeep of
// Asio's operations take a tenth of all CPU time (store_bench shows it).
#pragma once

#include <atomic>
#include <boost/asio/basic_stream_socket.hpp>
#include <boost/asio/basic_waitable_timer.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/posix/basic_stream_descriptor.hpp>
#include <chrono>
#include <cstddef>
#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "dlaunch/store/protocol.hpp"
#include "dlaunch/store/table.hpp"

namespace dlaunch::store {

// As asio::ip::tcp::socket, without the cost of an executor of any kind.
using Socket = boost::asio::basic_stream_socket<boost::asio::ip::tcp, boost::asio::io_context::executor_type>;

struct ServerLimits {
  ProtocolLimits protocol = {};
  TableLimits table = {};
};

class StoreServer {
 public:
  explicit StoreServer(boost::asio::io_context& io, ServerLimits limits = {});  // `io` outlives this
  ~StoreServer();
  StoreServer(const StoreServer&) = delete;
  StoreServer& operator=(const StoreServer&) = delete;

  // Serves a connected socket. `first_bytes` have been read from it already.
  void adopt(Socket socket, std::string first_bytes);

  // A new round: closes all sessions and drops all keys.
  void reset();

  // How many have asked something since the last reset; any thread may call this.
  std::size_t sessions_ever() const { return ever_.load(std::memory_order_relaxed); }

  std::size_t sessions() const { return open_; }
  const Table& table() const { return table_; }

 private:
  using Clock = std::chrono::steady_clock;
  using Timer = boost::asio::basic_waitable_timer<Clock, boost::asio::wait_traits<Clock>,
                                                  boost::asio::io_context::executor_type>;
  class Session;

  void await_sessions();
  void serve_ready();
  void read(Session& session);
  void take(Session& session, std::string_view bytes);
  void decode(Session& session);
  void await_silence(Session& session);
  void arm_silence();
  void end_silences();

  void deliver(Session& asking);
  void queue(Session& session, const Reply& reply);
  bool flush(Session& session);
  bool flush_scratch(Session& session);
  void block(Session& session, bool blocked);
  void close(Session& session);
  void bury();

  ServerLimits limits_;
  Table table_;
  std::vector<std::unique_ptr<Session>> slots_;  // index is the SessionId
  std::vector<SessionId> free_;
  std::vector<SessionId> dead_;  // closed, but perhaps still in use further up the stack
  std::size_t open_ = 0;
  std::atomic<std::size_t> ever_{0};

  boost::asio::posix::basic_stream_descriptor<boost::asio::io_context::executor_type> set_;  // the epoll set
  Timer silence_;
  bool silence_armed_ = false;
  std::deque<std::pair<Clock::time_point, SessionId>> silences_;  // who may have sent a DELETE_KEY of 1a

  std::vector<char> buffer_;        // what the session in hand has sent
  std::vector<Reply> replies_;      // to the request in hand
  std::string scratch_;             // answers to the session in hand, as long as they are small
  std::vector<SessionId> touched_;  // other sessions to which something was queued
};

}  // namespace dlaunch::store
