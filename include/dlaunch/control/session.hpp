// One control connection: frames in, frames out, over a TCP socket in one io_context. It knows nothing
// of what the messages mean. A dead peer is found by TCP itself (keepalive and user time-out) and told
// as an end of the connection.
//
// Lifetime: the owner may destroy a session only after on_end was called, or after its io_context has
// stopped for good.
#pragma once

#include <boost/asio/ip/tcp.hpp>
#include <chrono>
#include <deque>
#include <functional>
#include <string>

#include "dlaunch/control/protocol.hpp"

namespace dlaunch::control {

class Session {
 public:
  using OnMessage = std::function<void(Message)>;
  // `why` completes "lost: …": "connection closed", "connection reset by peer", a broken frame's text.
  using OnEnd = std::function<void(std::string why)>;

  // `first_bytes`: what was read from the socket already, the magic left out. `silence`: how long
  // unacknowledged data or an idle cable is tolerated.
  Session(boost::asio::ip::tcp::socket socket, std::string first_bytes, std::chrono::milliseconds silence);

  void start(OnMessage on_message, OnEnd on_end);
  // Text sent before any frame: the magic, by the side that connects.
  void send_raw(std::string bytes);
  void send(const Message& message) { send_raw(encode(message)); }
  // Ends the connection once everything sent has left; TCP bounds the wait by `silence`.
  void close_when_sent();
  void close_now();
  bool over() const { return ended_ && !reading_ && !writing_; }
  // Round-trip time as TCP measured it; 0 if unknown.
  std::chrono::microseconds round_trip() const;
  std::string peer_address() const { return peer_; }
  std::string local_address() const { return local_; }

 private:
  void read();
  void write();
  void written(boost::system::error_code error);
  bool deliver();
  void end(std::string why);
  void tell_end_if_idle();

  boost::asio::ip::tcp::socket socket_;
  std::string peer_, local_;
  std::string in_;
  std::deque<std::string> out_;
  OnMessage on_message_;
  OnEnd on_end_;
  std::string why_;
  bool reading_ = false;
  bool writing_ = false;
  bool closing_ = false;
  bool deaf_ = false;  // the peer takes nothing any more
  bool ended_ = false;
  char chunk_[16 * 1024];
};

}  // namespace dlaunch::control
