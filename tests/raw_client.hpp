// A TCP connection for tests that speaks bytes, and waits no longer than a deadline for them.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

namespace dlaunch::test {

class RawClient {
 public:
  explicit RawClient(std::uint16_t port, const char* address = "127.0.0.1") {
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(port);
    ::inet_pton(AF_INET, address, &to.sin_addr);
    fd_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const int on = 1;
    ::setsockopt(fd_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    connected_ = ::connect(fd_, reinterpret_cast<const sockaddr*>(&to), sizeof to) == 0;
  }
  RawClient(RawClient&& other) noexcept : fd_(std::exchange(other.fd_, -1)), connected_(other.connected_) {}
  ~RawClient() { close(); }

  bool connected() const { return connected_; }
  int fd() const { return fd_; }

  void close() {
    if (fd_ >= 0) ::close(std::exchange(fd_, -1));
  }

  void send(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t sent = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (sent <= 0) return;
      bytes.remove_prefix(static_cast<std::size_t>(sent));
    }
  }

  // Up to `count` bytes; fewer if the server closes or 10 s pass.
  std::string receive(std::size_t count) {
    std::string out;
    while (out.size() < count && readable(std::chrono::seconds(10))) {
      std::string piece(std::min<std::size_t>(count - out.size(), 1 << 16), '\0');
      const ssize_t got = ::recv(fd_, piece.data(), piece.size(), 0);
      if (got <= 0) break;
      out.append(piece, 0, static_cast<std::size_t>(got));
    }
    return out;
  }

  bool readable(std::chrono::milliseconds limit) const {
    pollfd one{fd_, POLLIN, 0};
    return ::poll(&one, 1, static_cast<int>(limit.count())) > 0;
  }

  // Has the server ended the connection, within 10 s and without another byte?
  bool ended() const {
    char byte = 0;
    return readable(std::chrono::seconds(10)) && ::recv(fd_, &byte, 1, 0) <= 0;
  }

 private:
  int fd_ = -1;
  bool connected_ = false;
};

}  // namespace dlaunch::test
