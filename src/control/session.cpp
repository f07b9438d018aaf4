#include "dlaunch/control/session.hpp"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <boost/asio/buffer.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/write.hpp>

namespace dlaunch::control {

namespace asio = boost::asio;

namespace {

constexpr std::int64_t kMaxUserTimeout = 24 * 3600 * 1000;

template <class Value>
void set_option(int fd, int level, int name, Value value) {
  ::setsockopt(fd, level, name, &value, sizeof value);
}

}  // namespace

Session::Session(asio::ip::tcp::socket socket, std::string first_bytes, std::chrono::milliseconds silence)
    : socket_(std::move(socket)), in_(std::move(first_bytes)) {
  boost::system::error_code ignored;
  auto remote = socket_.remote_endpoint(ignored);
  if (!ignored) peer_ = remote.address().to_string();
  auto local = socket_.local_endpoint(ignored);
  if (!ignored) local_ = local.address().to_string();
  int fd = socket_.native_handle();
  int seconds = std::max<int>(1, static_cast<int>(silence.count() / 3000));
  set_option(fd, IPPROTO_TCP, TCP_NODELAY, 1);
  set_option(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
  set_option(fd, IPPROTO_TCP, TCP_KEEPIDLE, seconds);
  set_option(fd, IPPROTO_TCP, TCP_KEEPINTVL, seconds);
  set_option(fd, IPPROTO_TCP, TCP_KEEPCNT, 3);
  set_option(fd, IPPROTO_TCP, TCP_USER_TIMEOUT,
             static_cast<unsigned>(std::min<std::int64_t>(silence.count(), kMaxUserTimeout)));
  socket_.non_blocking(true, ignored);
}

void Session::start(OnMessage on_message, OnEnd on_end) {
  on_message_ = std::move(on_message);
  on_end_ = std::move(on_end);
  reading_ = true;  // the bytes that came with the socket are delivered from the loop, not from here
  asio::post(socket_.get_executor(), [this] {
    reading_ = false;
    if (deliver()) read();
  });
}

bool Session::deliver() {
  std::string_view rest = in_;
  while (!ended_) {
    auto message = take_message(rest);
    if (!message) {
      end(message.error().text);
      return false;
    }
    if (!*message) break;
    on_message_(std::move(**message));
  }
  in_.erase(0, in_.size() - rest.size());
  return !ended_;
}

void Session::read() {
  reading_ = true;
  socket_.async_read_some(asio::buffer(chunk_), [this](boost::system::error_code error, std::size_t bytes) {
    reading_ = false;
    if (ended_) return tell_end_if_idle();
    if (error) return end(error == asio::error::eof ? "connection closed" : error.message());
    in_.append(chunk_, bytes);
    if (deliver()) read();
  });
}

void Session::send_raw(std::string bytes) {
  if (ended_ || closing_ || deaf_) return;
  out_.push_back(std::move(bytes));
  if (!writing_) write();
}

void Session::write() {
  writing_ = true;
  asio::async_write(socket_, asio::buffer(out_.front()),
                    [this](boost::system::error_code error, std::size_t) { written(error); });
}

void Session::written(boost::system::error_code error) {
  writing_ = false;
  if (ended_) return tell_end_if_idle();
  if (error) {
    // The peer's last words may still be unread; the end of the connection follows them.
    deaf_ = true;
    out_.clear();
    if (closing_ || !reading_) end("connection closed");
    return;
  }
  out_.pop_front();
  if (!out_.empty()) return write();
  if (closing_) end("closed");
}

void Session::close_when_sent() {
  closing_ = true;
  if (!writing_ && out_.empty()) end("closed");
}

void Session::close_now() { end("closed"); }

void Session::end(std::string why) {
  if (ended_) return;
  ended_ = true;
  why_ = std::move(why);
  boost::system::error_code ignored;
  socket_.shutdown(asio::ip::tcp::socket::shutdown_send, ignored);
  socket_.close(ignored);
  if (!reading_ && !writing_) {
    // Never from inside the owner's call: it may destroy us in on_end.
    reading_ = true;
    asio::post(socket_.get_executor(), [this] {
      reading_ = false;
      tell_end_if_idle();
    });
  }
}

void Session::tell_end_if_idle() {
  if (reading_ || writing_ || !on_end_) return;
  auto on_end = std::move(on_end_);
  on_end_ = nullptr;
  on_end(std::move(why_));
}

std::chrono::microseconds Session::round_trip() const {
  tcp_info info{};
  socklen_t size = sizeof info;
  auto& socket = const_cast<asio::ip::tcp::socket&>(socket_);
  if (::getsockopt(socket.native_handle(), IPPROTO_TCP, TCP_INFO, &info, &size) != 0) return {};
  return std::chrono::microseconds(info.tcpi_rtt);
}

}  // namespace dlaunch::control
