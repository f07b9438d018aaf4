#include "dlaunch/resolver.hpp"

#include <ares.h>
#include <arpa/inet.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <boost/asio/post.hpp>
#include <cerrno>
#include <initializer_list>
#include <optional>
#include <system_error>
#include <utility>

namespace dlaunch {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr std::size_t kMaxNameBytes = 253;
constexpr std::size_t kMaxAnswerBytes = 64 * 1024;
constexpr milliseconds kGetentLimit{5000};
constexpr milliseconds kPollSlice{100};  // how soon an abort is noticed
// A name server that is up answers in less; the second try waits twice as long.
constexpr milliseconds kServerPatience{1000};
constexpr int kServerTries = 2;
// Once one family is known, how long the other is waited for: some servers never answer for IPv6.
constexpr milliseconds kOtherFamily{250};

bool is_v4(const std::string& literal) { return literal.find(':') == std::string::npos; }

void add(Addresses& found, std::string literal) {
  if (std::find(found.begin(), found.end(), literal) == found.end()) found.push_back(std::move(literal));
}

void v4_first(Addresses& found) { std::stable_partition(found.begin(), found.end(), is_v4); }

std::string to_literal(const sockaddr* address) {
  char text[INET6_ADDRSTRLEN] = "";
  if (address->sa_family == AF_INET) {
    ::inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in*>(address)->sin_addr, text, sizeof text);
    return text;
  }
  if (address->sa_family != AF_INET6) return "";
  const auto* v6 = reinterpret_cast<const sockaddr_in6*>(address);
  ::inet_ntop(AF_INET6, &v6->sin6_addr, text, sizeof text);
  if (v6->sin6_scope_id == 0) return text;
  return std::string(text) + "%" + std::to_string(v6->sin6_scope_id);
}

// How long poll may sleep: until `deadline`, and never longer than an abort may stay unnoticed.
int slice_until(Clock::time_point deadline) {
  auto left = std::chrono::ceil<milliseconds>(deadline - Clock::now());
  return static_cast<int>(std::clamp(left, milliseconds(0), kPollSlice).count());
}

class Attempt {
 public:
  Attempt(const std::string& name, const ResolveOptions& options, const std::atomic<bool>* abort)
      : name_(name), options_(options), abort_(abort) {}

  Result<Addresses> run(Clock::time_point deadline) {
    // A silent name server must not use up all the time: getent may know better.
    auto half_way = Clock::now() + (deadline - Clock::now()) * 3 / 5;
    Result<Addresses> answer = ask_cares(half_way);
    if (answer || aborted()) return answer;
    std::optional<Addresses> other = ask_getent(std::min(deadline, Clock::now() + kGetentLimit));
    if (other) return std::move(*other);
    return answer;
  }

 private:
  bool aborted() const { return abort_ && abort_->load(std::memory_order_relaxed); }

  Error unknown(Errc code, const std::string& why) const {
    return {code, "no address found for '" + name_ + "': " + why};
  }

  // What one channel was told; two questions may write into it.
  struct CaresAnswer {
    int open = 0;
    int code = ARES_ENOTFOUND;  // the last one that says more than "unknown"
    Addresses found;
  };

  Result<Addresses> ask_cares(Clock::time_point deadline) {
    // The hosts file alone first, for both families at once: a name that has an entry there is not
    // asked of a name server for the family that the entry lacks.
    CaresAnswer answer = query("f", {AF_UNSPEC}, deadline);
    if (answer.found.empty()) answer = query(nullptr, {AF_INET, AF_INET6}, deadline);
    if (!answer.found.empty()) {
      v4_first(answer.found);
      return std::move(answer.found);
    }
    switch (answer.code) {
      case ARES_ENOTFOUND:
        return unknown(Errc::not_found, "neither the hosts file nor the name service knows it");
      case ARES_ETIMEOUT:
        return unknown(Errc::timed_out, "it is not in the hosts file, and no name server answers");
      case ARES_ECONNREFUSED:
        return unknown(Errc::unreachable, "it is not in the hosts file, and no name server can be reached");
      default:
        return unknown(Errc::failed, ares_strerror(answer.code));
    }
  }

  // `lookups`: "f" for the hosts file, null for what the system is set up for.
  CaresAnswer query(const char* lookups, std::initializer_list<int> families, Clock::time_point deadline) {
    CaresAnswer answer;
    std::string letters = lookups ? lookups : "";
    ares_options wanted{};
    wanted.timeout = static_cast<int>(kServerPatience.count());
    wanted.tries = kServerTries;
    wanted.lookups = letters.data();
    ares_channel channel = nullptr;
    answer.code = ares_init_options(&channel, &wanted,
                                    ARES_OPT_TIMEOUTMS | ARES_OPT_TRIES | (lookups ? ARES_OPT_LOOKUPS : 0));
    if (answer.code != ARES_SUCCESS) return answer;
    answer.code = ARES_ENOTFOUND;
    if (!options_.name_servers.empty()) ares_set_servers_ports_csv(channel, options_.name_servers.c_str());

    for (int family : families) {
      ares_addrinfo_hints hints{};
      hints.ai_family = family;
      hints.ai_flags = ARES_AI_NOSORT | (options_.hosts_from_variable ? ARES_AI_ENVHOSTS : 0);
      ++answer.open;
      ares_getaddrinfo(channel, name_.c_str(), nullptr, &hints, &Attempt::cares_answered, &answer);
    }
    bool one_family_known = false;
    while (answer.open > 0 && !aborted() && Clock::now() < deadline) {
      turn(channel, deadline);
      if (answer.found.empty() || one_family_known) continue;
      one_family_known = true;
      deadline = std::min<Clock::time_point>(deadline, Clock::now() + kOtherFamily);
    }
    bool too_late = answer.open > 0;
    ares_destroy(channel);  // answers what is open with ARES_EDESTRUCTION
    if (too_late) answer.code = ARES_ETIMEOUT;
    return answer;
  }

  static void cares_answered(void* to, int code, int, ares_addrinfo* info) {
    auto& answer = *static_cast<CaresAnswer*>(to);
    --answer.open;
    bool says_unknown = code == ARES_SUCCESS || code == ARES_ENODATA || code == ARES_ENONAME;
    if (!says_unknown && code != ARES_ENOTFOUND) answer.code = code;
    for (auto* node = info ? info->nodes : nullptr; node; node = node->ai_next) {
      std::string literal = to_literal(node->ai_addr);
      if (!literal.empty()) add(answer.found, std::move(literal));
    }
    if (info) ares_freeaddrinfo(info);
  }

  static void turn(ares_channel channel, Clock::time_point deadline) {
    std::array<ares_socket_t, ARES_GETSOCK_MAXNUM> sockets{};
    int wants = ares_getsock(channel, sockets.data(), ARES_GETSOCK_MAXNUM);
    std::array<pollfd, ARES_GETSOCK_MAXNUM> polled{};
    nfds_t count = 0;
    for (int i = 0; i < ARES_GETSOCK_MAXNUM; ++i) {
      short events = 0;
      if (ARES_GETSOCK_READABLE(wants, i)) events |= POLLIN;
      if (ARES_GETSOCK_WRITABLE(wants, i)) events |= POLLOUT;
      if (events) polled[count++] = {sockets[static_cast<std::size_t>(i)], events, 0};
    }
    timeval limit{0, kPollSlice.count() * 1000}, buffer{};
    timeval* next = ares_timeout(channel, &limit, &buffer);
    int sleep = static_cast<int>(next->tv_sec * 1000 + next->tv_usec / 1000);
    if (::poll(polled.data(), count, std::min(sleep, slice_until(deadline))) <= 0) {
      ares_process_fd(channel, ARES_SOCKET_BAD, ARES_SOCKET_BAD);  // its own timers
      return;
    }
    for (nfds_t i = 0; i < count; ++i) {
      if (!polled[i].revents) continue;
      bool reads = polled[i].events & POLLIN;
      bool writes = polled[i].revents & (POLLOUT | POLLERR | POLLHUP) && polled[i].events & POLLOUT;
      ares_process_fd(channel, reads ? polled[i].fd : ARES_SOCKET_BAD,
                      writes ? polled[i].fd : ARES_SOCKET_BAD);
    }
  }

  // Nothing where there is no getent, or where it does not know the name or does not answer.
  std::optional<Addresses> ask_getent(Clock::time_point deadline) {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC)) return std::nullopt;
    pid_t pid = start_getent(ends[1]);
    ::close(ends[1]);
    if (pid < 0) {
      ::close(ends[0]);
      return std::nullopt;
    }
    std::string text;
    bool ended = false;
    while (!ended && !aborted() && Clock::now() < deadline && text.size() < kMaxAnswerBytes) {
      pollfd readable{ends[0], POLLIN, 0};
      if (::poll(&readable, 1, slice_until(deadline)) <= 0) continue;
      char bytes[4096];
      ssize_t got = ::read(ends[0], bytes, sizeof bytes);
      if (got > 0) text.append(bytes, static_cast<std::size_t>(got));
      ended = got == 0 || (got < 0 && errno != EINTR);
    }
    ::close(ends[0]);
    end_getent(pid);
    Addresses found;
    for (std::size_t start = 0; start < text.size();) {
      std::size_t end = std::min(text.find('\n', start), text.size());
      std::string line = text.substr(start, end - start);
      std::string literal = address_literal(line.substr(0, line.find_first_of(" \t")));
      if (!literal.empty()) add(found, std::move(literal));
      start = end + 1;
    }
    if (found.empty()) return std::nullopt;
    v4_first(found);
    return found;
  }

  // In a process group of its own, with default signals and nothing open but 0, 1 and 2.
  pid_t start_getent(int out) const {
    posix_spawn_file_actions_t files;
    ::posix_spawn_file_actions_init(&files);
    ::posix_spawn_file_actions_addopen(&files, 0, "/dev/null", O_RDONLY, 0);
    ::posix_spawn_file_actions_adddup2(&files, out, 1);
    ::posix_spawn_file_actions_addopen(&files, 2, "/dev/null", O_WRONLY, 0);
    ::posix_spawn_file_actions_addclosefrom_np(&files, 3);
    posix_spawnattr_t attributes;
    ::posix_spawnattr_init(&attributes);
    sigset_t signals;
    ::sigemptyset(&signals);
    ::posix_spawnattr_setsigmask(&attributes, &signals);
    ::sigfillset(&signals);
    ::posix_spawnattr_setsigdefault(&attributes, &signals);
    ::posix_spawnattr_setpgroup(&attributes, 0);
    ::posix_spawnattr_setflags(&attributes,
                               POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETPGROUP);
    std::string words[] = {"getent", "ahosts", name_};
    char* arguments[] = {words[0].data(), words[1].data(), words[2].data(), nullptr};
    pid_t pid = -1;
    int code = ::posix_spawnp(&pid, "getent", &files, &attributes, arguments, environ);
    ::posix_spawnattr_destroy(&attributes);
    ::posix_spawn_file_actions_destroy(&files);
    return code == 0 ? pid : -1;
  }

  // A program that reaps every child of its own may have been faster; then the number is no longer
  // ours to signal.
  static void end_getent(pid_t pid) {
    siginfo_t state{};
    if (::waitid(P_PID, static_cast<id_t>(pid), &state, WEXITED | WNOHANG | WNOWAIT)) return;
    ::kill(-pid, SIGKILL);  // also when it has ended: its group may live on
    while (::waitpid(pid, nullptr, 0) < 0 && errno == EINTR) {
    }
  }

  const std::string& name_;
  const ResolveOptions& options_;
  const std::atomic<bool>* abort_;
};

// Does not judge what a host name may look like, only what must not reach a program's arguments or
// a terminal.
bool could_be_a_name(const std::string& name) {
  if (name.empty() || name.size() > kMaxNameBytes || name[0] == '-') return false;
  return std::none_of(name.begin(), name.end(), [](unsigned char c) { return c <= ' ' || c == 0x7f; });
}

}  // namespace

std::string address_literal(const std::string& text) {
  std::string bare = text;
  if (bare.size() > 2 && bare.front() == '[' && bare.back() == ']') bare = bare.substr(1, bare.size() - 2);
  in6_addr buffer;
  if (bare == text && ::inet_pton(AF_INET, bare.c_str(), &buffer) == 1) return bare;
  // Text after a NUL would be invisible to inet_pton.
  if (bare.find('\0') != std::string::npos) return "";
  std::string without_scope = bare.substr(0, bare.find('%'));
  if (::inet_pton(AF_INET6, without_scope.c_str(), &buffer) == 1 && bare.back() != '%') return bare;
  return "";
}

Result<Addresses> resolve(const std::string& name, Clock::time_point deadline, const ResolveOptions& options,
                          const std::atomic<bool>* abort) {
  if (std::string literal = address_literal(name); !literal.empty()) return Addresses{literal};
  // No file needs to say so, and c-ares 1.18 leaks memory over it.
  if (name == "localhost") return Addresses{"127.0.0.1", "::1"};
  if (!could_be_a_name(name)) return Error{Errc::not_found, "'" + name + "' is not a host name"};
  return Attempt(name, options, abort).run(deadline);
}

struct Resolver::Question {
  Handler handler;           // home's thread only
  std::atomic<bool> closed;  // read by the resolving thread
};

Resolver::Resolver(boost::asio::any_io_executor home, ResolveOptions options)
    : home_(std::move(home)), options_(std::move(options)), work_(io_.get_executor()) {}

Resolver::~Resolver() {
  cancel();
  work_.reset();
  if (thread_.joinable()) thread_.join();
}

void Resolver::cancel() {
  if (!open_) return;
  open_->closed = true;
  open_->handler = nullptr;
  open_.reset();
}

Result<void> Resolver::start_thread() {
  if (thread_.joinable()) return {};
  // The thread must get no signal: handlers and waits belong to the main thread.
  sigset_t all, before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  Result<void> started;
  try {
    thread_ = std::thread([this] { io_.run(); });
  } catch (const std::system_error& error) {
    started = Error{Errc::failed, std::string("starting a thread: ") + error.what()};
  }
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return started;
}

void Resolver::ask(std::string name, milliseconds limit, Handler handler) {
  cancel();
  open_ = std::make_shared<Question>();
  open_->handler = std::move(handler);
  auto answer = [home = home_, question = std::weak_ptr(open_)](Result<Addresses> result) {
    boost::asio::post(home, [question, result = std::move(result)]() mutable {
      auto still_open = question.lock();
      if (!still_open || still_open->closed) return;
      still_open->closed = true;
      auto handler = std::exchange(still_open->handler, nullptr);
      handler(std::move(result));
    });
  };
  if (std::string literal = address_literal(name); !literal.empty()) {
    answer(Addresses{std::move(literal)});
    return;
  }
  if (auto started = start_thread(); !started) {
    answer(started.error());
    return;
  }
  auto deadline = Clock::now() + limit;
  boost::asio::post(io_, [this, question = open_, answer, name = std::move(name), deadline] {
    if (!question->closed) answer(resolve(name, deadline, options_, &question->closed));
  });
}

Addresses local_addresses() {
  Addresses found;
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list)) return found;
  for (ifaddrs* entry = list; entry; entry = entry->ifa_next) {
    if (!entry->ifa_addr || !(entry->ifa_flags & IFF_UP)) continue;
    std::string literal = to_literal(entry->ifa_addr);
    if (!literal.empty()) add(found, std::move(literal));
  }
  ::freeifaddrs(list);
  v4_first(found);
  return found;
}

std::string host_name() {
  char name[256] = "";
  ::gethostname(name, sizeof name - 1);
  return name;
}

}  // namespace dlaunch
