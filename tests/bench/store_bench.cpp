// The clients of the store's benchmark, in one thread; store.py starts the servers and compares.
//
//   store_bench load PORT PID DIALECT CONNECTIONS SECONDS   SET, WAIT, GET on each connection, in turn
//   store_bench connect PORT PID DIALECT CONNECTIONS        all connect at once and ask one question
//   store_bench barrier PORT PID DIALECT CONNECTIONS        all connect, and meet at a barrier
//
// DIALECT is 1 (PyTorch 1.x) or 2. Each request is one send, as PyTorch's clients do it. PID is the server,
// whose CPU time is read from /proc. One line of JSON comes out.
#include <arpa/inet.h>
#include <dirent.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;

[[noreturn]] void die(const std::string& why) {
  std::fprintf(stderr, "store_bench: %s: %s\n", why.c_str(), std::strerror(errno));
  _exit(1);
}

// Of all its threads, in seconds.
double cpu_of(const std::string& pid) {
  const std::string folder = "/proc/" + pid + "/task";
  DIR* dir = opendir(folder.c_str());
  if (!dir) die(folder);
  double nanoseconds = 0;
  while (const dirent* entry = readdir(dir)) {
    if (entry->d_name[0] == '.') continue;
    double on_cpu = 0;
    std::ifstream(folder + "/" + entry->d_name + "/schedstat") >> on_cpu;
    nanoseconds += on_cpu;
  }
  closedir(dir);
  return nanoseconds / 1e9;
}

std::string u64(std::uint64_t n) { return std::string(reinterpret_cast<const char*>(&n), 8); }
std::string vec(const std::string& text) { return u64(text.size()) + text; }

constexpr std::size_t kValueBytes = 128;

struct Codes {
  explicit Codes(int dialect) : two(dialect == 2) {}
  char of(int code_of_1) const { return static_cast<char>(code_of_1 + (two ? 1 : 0)); }
  std::string hello(int id) const {
    if (!two) return {};
    std::string out("\0\xCE\xF7\x85\x3C\x0D", 6);
    return out.append(reinterpret_cast<const char*>(&id), 4);
  }
  bool two;
};

struct Client {
  int fd = -1;
  std::string hello, set, wait, get, add, barrier, gather, open;
  std::size_t expected = 0;  // bytes still to come
  int state = 0;
};

void send_all(const Client& client, std::string_view bytes) {
  if (send(client.fd, bytes.data(), bytes.size(), MSG_NOSIGNAL) != static_cast<ssize_t>(bytes.size())) die("send");
}

// Everything that has come; false if nothing had.
bool take(Client& client) {
  char buffer[4096];
  const ssize_t got = recv(client.fd, buffer, sizeof buffer, 0);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return false;
  if (got <= 0) die("recv");
  if (static_cast<std::size_t>(got) > client.expected) {
    errno = EPROTO;
    die("more bytes than asked for");
  }
  client.expected -= static_cast<std::size_t>(got);
  return true;
}

class Load {
 public:
  Load(int port, int dialect, int connections) : codes_(dialect), set_(epoll_create1(0)) {
    address_.sin_family = AF_INET;
    address_.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address_.sin_port = htons(static_cast<std::uint16_t>(port));
    clients_.resize(static_cast<std::size_t>(connections));
    for (std::size_t i = 0; i < clients_.size(); ++i) {
      Client& c = clients_[i];
      const std::string key = "/default_pg/0//cpu//0/rank_" + std::to_string(i);
      c.hello = codes_.hello(static_cast<int>(i + 1));
      c.set = codes_.of(0) + vec(key) + vec(std::string(kValueBytes, 'v'));
      c.wait = codes_.of(5) + u64(1) + vec(key);
      c.get = codes_.of(2) + vec(key);
      c.add = codes_.of(3) + vec("init/") + u64(1);
      c.barrier = char(18) + vec("/barrier") + u64(clients_.size());
      c.gather = codes_.of(5) + u64(1) + vec("/everybody");
      c.open = codes_.of(0) + vec("/everybody") + vec("x");
    }
  }

  // Each connection is made and its first question sent as soon as the kernel lets us.
  void connect_all() {
    for (Client& c : clients_) {
      c.fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
      if (c.fd < 0) die("socket");
      const int on = 1;
      setsockopt(c.fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
      if (connect(c.fd, reinterpret_cast<const sockaddr*>(&address_), sizeof address_) && errno != EINPROGRESS) {
        die("connect");
      }
      epoll_event event{};
      event.events = EPOLLOUT;
      event.data.ptr = &c;
      epoll_ctl(set_, EPOLL_CTL_ADD, c.fd, &event);
    }
    std::size_t answered = 0;
    while (answered < clients_.size()) {
      for (Client* c : ready(60)) {
        if (c->state == 0) {
          int error = 0;
          socklen_t size = sizeof error;
          getsockopt(c->fd, SOL_SOCKET, SO_ERROR, &error, &size);
          if (error) {
            errno = error;
            die("connect");
          }
          c->state = 1;
          epoll_event event{};
          event.events = EPOLLIN;
          event.data.ptr = c;
          epoll_ctl(set_, EPOLL_CTL_MOD, c->fd, &event);
          c->expected = codes_.two ? 12 : 8;
          send_all(*c, c->hello + c->add);
        } else if (take(*c) && c->expected == 0) {
          ++answered;
        }
      }
    }
  }

  std::size_t run(double seconds) {
    std::size_t requests = 0;
    for (Client& c : clients_) ask(c);
    std::size_t active = clients_.size();
    const auto end = Clock::now() + std::chrono::duration<double>(seconds);
    while (active) {
      const bool over = Clock::now() >= end;
      for (Client* c : ready(60)) {
        if (!take(*c) || c->expected) continue;
        if (c->state == 2) {  // after the WAIT
          c->state = 3;
          c->expected = 8 + kValueBytes;
          send_all(*c, c->get);
        } else {
          requests += 3;
          if (over) {
            --active;
          } else {
            ask(*c);
          }
        }
      }
    }
    return requests;
  }

  // PyTorch 1.x has no such request: there the last one sets a key for which all wait.
  void meet() {
    for (Client& c : clients_) {
      c.expected = 1;
      if (!codes_.two && &c == &clients_.back()) send_all(c, c.open);
      send_all(c, codes_.two ? c.barrier : c.gather);
    }
    std::size_t met = 0;
    while (met < clients_.size()) {
      for (Client* c : ready(120)) {
        if (take(*c) && c->expected == 0) ++met;
      }
    }
  }

 private:
  void ask(Client& c) {
    c.state = 2;
    c.expected = 1;
    send_all(c, c.set);
    send_all(c, c.wait);
  }

  const std::vector<Client*>& ready(int seconds) {
    epoll_event events[256];
    const int count = epoll_wait(set_, events, 256, seconds * 1000);
    if (count == 0) {
      errno = ETIMEDOUT;
      die("waiting for the server");
    }
    ready_.clear();
    for (int i = 0; i < count; ++i) ready_.push_back(static_cast<Client*>(events[i].data.ptr));
    return ready_;
  }

  Codes codes_;
  int set_;
  sockaddr_in address_{};
  std::vector<Client> clients_;
  std::vector<Client*> ready_;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc < 6) {
    std::fprintf(stderr, "usage: store_bench load|connect|barrier PORT PID DIALECT CONNECTIONS [SECONDS]\n");
    return 2;
  }
  const std::string mode = argv[1], pid = argv[3];
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);

  Load load(std::atoi(argv[2]), std::atoi(argv[4]), std::atoi(argv[5]));
  std::size_t requests = 0;
  double cpu = cpu_of(pid);
  auto start = Clock::now();
  load.connect_all();
  if (mode == "load") {
    load.run(0.1);  // warm
    cpu = cpu_of(pid);
    start = Clock::now();
    requests = load.run(argc > 6 ? std::atof(argv[6]) : 1);
  } else if (mode == "barrier") {
    load.meet();
  }
  const double wall = std::chrono::duration<double>(Clock::now() - start).count();
  std::printf("{\"requests\": %zu, \"wall\": %.6f, \"cpu\": %.6f}\n", requests, wall, cpu_of(pid) - cpu);
}
