// The floor of the store's benchmark: an epoll server that reads, skips over each request and answers with
// as many bytes as a store would, without a table, limits or dialects. No store in one thread that is asked
// by one request at a time can use less CPU. Prints its port, ends at the end of its input.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

namespace {

// Dialect 2 only, and only what the load consists of.
std::size_t answer(const char* bytes, std::size_t size, std::string& out) {
  std::size_t at = 0;
  const auto string = [&](std::size_t& i) {
    std::uint64_t length = 0;
    if (size - i < 8) return false;
    std::memcpy(&length, bytes + i, 8);
    if (size - i - 8 < length) return false;
    i += 8 + length;
    return true;
  };
  while (at < size) {
    std::size_t i = at + 1;
    switch (bytes[at]) {
      case 0:  // VALIDATE
        if (size - i < 4) return at;
        i += 4;
        break;
      case 1:  // SET
        if (!string(i) || !string(i)) return at;
        break;
      case 3: {  // GET
        if (!string(i)) return at;
        const std::uint64_t length = 128;
        out.append(reinterpret_cast<const char*>(&length), 8);
        out.append(128, 'v');
        break;
      }
      case 4:  // ADD
        if (!string(i) || size - i < 8) return at;
        out.append(bytes + i, 8);
        i += 8;
        break;
      case 6:  // WAIT for one key
        if (size - i < 8) return at;
        i += 8;
        if (!string(i)) return at;
        out.push_back(0);
        break;
      case 13:  // PING
        if (size - i < 4) return at;
        out.append(bytes + i, 4);
        i += 4;
        break;
      default: std::fprintf(stderr, "store_floor: request %d\n", bytes[at]); _exit(1);
    }
    at = i;
  }
  return at;
}

}  // namespace

int main() {
  const int listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  if (bind(listener, reinterpret_cast<sockaddr*>(&address), length) || listen(listener, SOMAXCONN)) return 1;
  getsockname(listener, reinterpret_cast<sockaddr*>(&address), &length);
  std::printf("%d\n", ntohs(address.sin_port));
  std::fflush(stdout);

  const int set = epoll_create1(0);
  const auto add = [set](int fd) {
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.fd = fd;
    epoll_ctl(set, EPOLL_CTL_ADD, fd, &event);
  };
  add(listener);
  add(0);
  std::vector<std::string> rests(1 << 16);
  std::vector<char> buffer(1 << 16);
  std::string out;
  for (;;) {
    epoll_event events[256];
    const int ready = epoll_wait(set, events, 256, -1);
    for (int i = 0; i < ready; ++i) {
      const int fd = events[i].data.fd;
      if (fd == 0) return 0;
      if (fd == listener) {
        int client = -1;
        while ((client = accept4(listener, nullptr, nullptr, SOCK_NONBLOCK)) >= 0) {
          const int on = 1;
          setsockopt(client, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
          add(client);
        }
        continue;
      }
      const ssize_t got = recv(fd, buffer.data(), buffer.size(), 0);
      if (got <= 0) {
        close(fd);
        rests[fd].clear();
        continue;
      }
      out.clear();
      std::string& rest = rests[fd];
      if (rest.empty()) {
        const std::size_t used = answer(buffer.data(), got, out);
        if (used < std::size_t(got)) rest.assign(buffer.data() + used, got - used);
      } else {
        rest.append(buffer.data(), got);
        rest.erase(0, answer(rest.data(), rest.size(), out));
      }
      if (!out.empty() && send(fd, out.data(), out.size(), MSG_NOSIGNAL) < 0) return 1;
    }
  }
}
