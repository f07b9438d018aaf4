// Serves the store's table on sockets, in one thread: whoever runs the io_context owns all of this.
//
// A session is read as bytes come and answered by a direct write; only what the socket does not take is
// queued, and a client whose answers are queued is not read until it has taken them. A session is never
// closed for being silent: clients of PyTorch 1.9 to 2.0 hold a second, silent connection for life. It is
// closed when its client closes it, breaks the protocol or a limit, or at reset(). No peer is looked up.
#pragma once

#include <atomic>
#include <boost/asio/basic_stream_socket.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
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
  // The io_context is borrowed. It must not run any more once the server has been destroyed, since
  // handlers of closed sessions may still lie in it.
  explicit StoreServer(boost::asio::io_context& io, ServerLimits limits = {});
  ~StoreServer();
  StoreServer(const StoreServer&) = delete;
  StoreServer& operator=(const StoreServer&) = delete;

  // Serves a connected socket. `first_bytes` have been read from it already.
  void adopt(Socket socket, std::string first_bytes);

  // A new round: closes all sessions and drops all keys.
  void reset();

  std::size_t sessions() const { return open_; }
  // How many have asked something since the last reset; any thread may call this.
  std::size_t sessions_ever() const { return ever_.load(std::memory_order_relaxed); }
  const Table& table() const { return table_; }

 private:
  class Session;
  friend class Session;

  void serve(Session& session, std::string_view bytes);
  void decode(Session& session);
  void read(Session& session);
  void on_read(Session& session, bool failed, std::size_t size);
  void await_silence(Session& session);
  void deliver(Session& asking);
  void queue(Session& session, const Reply& reply);
  bool flush(Session& session);
  void await_room(Session& session);
  void on_room(Session& session, bool failed);
  void close(Session& session);
  void release_if_done(Session& session);

  boost::asio::io_context& io_;
  ServerLimits limits_;
  Table table_;
  std::vector<std::unique_ptr<Session>> slots_;  // index is the SessionId
  std::vector<SessionId> free_;
  std::size_t open_ = 0;
  std::atomic<std::size_t> ever_{0};
  std::vector<Reply> replies_;      // of the request in hand
  std::vector<SessionId> touched_;  // other sessions to which something was queued
  std::string scratch_;             // answers to the session in hand, as long as they are small
  std::vector<char> wide_;          // for clients that send much
};

}  // namespace dlaunch::store
