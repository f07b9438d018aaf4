#include "agent/net_thread.hpp"

#include <fcntl.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <boost/asio/basic_socket_acceptor.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/ip/v6_only.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <cerrno>
#include <chrono>
#include <list>
#include <thread>
#include <utility>

#include "dlaunch/control/protocol.hpp"
#include "dlaunch/kernel.hpp"
#include "dlaunch/port_holder.hpp"
#include "dlaunch/store/server.hpp"

namespace dlaunch {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;
using store::Socket;
using Clock = std::chrono::steady_clock;
using Acceptor = asio::basic_socket_acceptor<tcp, asio::io_context::executor_type>;

// Out of descriptors: the kernel keeps the connections in its queue meanwhile.
constexpr std::chrono::milliseconds kNoDescriptors{100};

// All of a range of ports may be free at one address and taken at another.
constexpr int kTriesForOnePort = 32;

std::string text_of(const tcp::endpoint& endpoint) {
  const std::string address = endpoint.address().to_string();
  const std::string port = std::to_string(endpoint.port());
  return endpoint.address().is_v6() ? "[" + address + "]:" + port : address + ":" + port;
}

Error cannot_bind(const tcp::endpoint& endpoint, const error_code& error) {
  if (error != boost::system::errc::address_in_use) {
    return Error{Errc::failed, "cannot listen at " + text_of(endpoint) + ": " + error.message()};
  }
  std::string text = "port " + std::to_string(endpoint.port()) + " is taken";
  if (const auto holder = port_holder(endpoint.port())) {
    text += " by " + holder->program + " (pid " + std::to_string(holder->pid) + ")";
  }
  return Error{Errc::refused, text, "end that program, or give another port"};
}

// A peer that came over the dual-stack listener is known by its IPv4 address.
std::string address_of(const Socket& socket) {
  error_code error;
  const tcp::endpoint peer = socket.remote_endpoint(error);
  if (error) return {};
  if (peer.address().is_v6() && peer.address().to_v6().is_v4_mapped()) {
    return asio::ip::make_address_v4(asio::ip::v4_mapped, peer.address().to_v6()).to_string();
  }
  return peer.address().to_string();
}

}  // namespace

class NetThread::Loop {
 public:
  explicit Loop(Config config) : config_(std::move(config)), store_on_(config_.store), server_(io_) {}

  ~Loop() {
    if (!thread_.joinable()) return;
    io_.stop();
    thread_.join();
  }

  Result<> bind() {
    if (config_.addresses.empty()) return bind_everywhere();
    std::vector<asio::ip::address> addresses;
    for (const std::string& text : config_.addresses) {
      error_code error;
      const asio::ip::address address = asio::ip::make_address(text, error);
      if (std::find(addresses.begin(), addresses.end(), address) == addresses.end())
        addresses.push_back(address);
      if (error) return Error{Errc::usage, "'" + text + "' is no IPv4 or IPv6 address"};
    }
    for (int i = 0;; ++i) {
      listeners_.clear();
      Result<> bound = bind_all(addresses);
      const bool again = config_.port == 0 && addresses.size() > 1 && i < kTriesForOnePort;
      if (bound || bound.error().code != Errc::refused || !again) return bound;
    }
  }

  void start() {
    for (Listener& listener : listeners_) accept(listener);
    sigset_t all, before;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &before);
    thread_ = std::thread([this] { io_.run(); });
    ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  }

  std::uint16_t port() const { return port_; }
  bool was_used() const { return server_.sessions_ever() > 0; }

  void reset_store(std::function<void()> done) {
    asio::post(io_, [this, done = std::move(done)] {
      server_.reset();
      if (done) done();
    });
  }

  void store_enabled(bool on) {
    asio::post(io_, [this, on] {
      store_on_ = on;
      if (on) return;
      server_.reset();
      if (!newcomers_.empty()) sweep_soon();
    });
  }

 private:
  // A connection whose first bytes have not come yet.
  struct Newcomer {
    explicit Newcomer(Socket connected) : socket(std::move(connected)) {}
    Socket socket;
    std::array<char, 512> bytes;
    std::size_t size = 0;
    Clock::time_point since = Clock::now();
  };
  struct Listener {
    explicit Listener(asio::io_context& io) : acceptor(io), pause(io) {}
    Acceptor acceptor;
    asio::steady_timer pause;
  };
  using Place = std::list<Newcomer>::iterator;

  Result<> bind_everywhere() {
    const tcp::endpoint both(asio::ip::address_v6::any(), config_.port);
    Result<> bound = listen(both, /*v6_only=*/false);
    if (bound || bound.error().code == Errc::refused) return bound;
    listeners_.clear();
    return listen({asio::ip::address_v4::any(), config_.port}, false);
  }

  Result<> bind_all(const std::vector<asio::ip::address>& addresses) {
    port_ = config_.port;
    for (const asio::ip::address& address : addresses) {
      if (Result<> bound = listen({address, port_}, /*v6_only=*/addresses.size() > 1); !bound) {
        return bound;
      }
    }
    return {};
  }

  Result<> listen(const tcp::endpoint& endpoint, bool v6_only) {
    error_code error;
    Acceptor& acceptor = listeners_.emplace_back(io_).acceptor;
    acceptor.open(endpoint.protocol(), error);
    if (!error) ::fcntl(acceptor.native_handle(), F_SETFD, FD_CLOEXEC);
    if (!error) acceptor.set_option(Acceptor::reuse_address(true), error);
    if (!error && endpoint.address().is_v6()) acceptor.set_option(asio::ip::v6_only(v6_only), error);
    if (!error) acceptor.bind(endpoint, error);
    if (!error) acceptor.listen(std::max(SOMAXCONN, 1 << 15), error);  // the kernel caps it
    if (!error) acceptor.native_non_blocking(true, error);
    if (!error) port_ = acceptor.local_endpoint(error).port();
    if (error) return cannot_bind(endpoint, error);
    return {};
  }

  void accept(Listener& listener) {
    listener.acceptor.async_wait(Acceptor::wait_read, [this, &listener](error_code error) {
      if (error) return;
      if (accept_all(listener.acceptor)) return accept(listener);
      listener.pause.expires_after(kNoDescriptors);
      listener.pause.async_wait([this, &listener](error_code stopped) {
        if (!stopped) accept(listener);
      });
    });
  }

  // Until there are no more. False: there may be, but no descriptor for them.
  bool accept_all(Acceptor& acceptor) {
    for (;;) {
      sockaddr_storage peer;
      socklen_t size = sizeof peer;
      const int fd = ::accept4(acceptor.native_handle(), reinterpret_cast<sockaddr*>(&peer), &size,
                               SOCK_NONBLOCK | SOCK_CLOEXEC);
      if (fd >= 0) {
        Socket socket(io_);
        error_code error;
        socket.assign(peer.ss_family == AF_INET6 ? tcp::v6() : tcp::v4(), fd, error);
        if (error) {
          ::close(fd);
          return false;
        }
        newcomers_.emplace_front(std::move(socket));
        if (!store_on_) sweep_soon();
        read(newcomers_.begin());
        continue;
      }
      switch (errno) {
        case EAGAIN:
          return true;
        case EMFILE:
        case ENFILE:
        case ENOBUFS:
        case ENOMEM:
          return false;
        default:
          break;  // that connection has failed already; the next one may be well
      }
    }
  }

  void read(Place newcomer) {
    const auto room =
        asio::buffer(newcomer->bytes.data() + newcomer->size, newcomer->bytes.size() - newcomer->size);
    newcomer->socket.async_read_some(room, [this, newcomer](error_code error, std::size_t size) {
      newcomer->size += size;
      if (error) {
        newcomers_.erase(newcomer);
      } else {
        decide(newcomer);
      }
    });
  }

  void decide(Place newcomer) {
    const std::string_view bytes(newcomer->bytes.data(), newcomer->size);
    const std::string_view magic = control::kMagic;
    if (bytes.starts_with(magic)) {
      hand_over(newcomer);
    } else if (!magic.starts_with(bytes)) {
      if (store_on_) server_.adopt(std::move(newcomer->socket), std::string(bytes));
      newcomers_.erase(newcomer);
    } else {
      newcomer->since = Clock::now();
      sweep_soon();
      read(newcomer);
    }
  }

  // Closes who will not say what it is. No dialect of the store begins like a control connection, so who
  // stops in the middle of the magic is neither; who says nothing may be a worker's second connection, which
  // stays for life.
  void sweep_soon() {
    if (std::exchange(sweeping_, true)) return;
    sweep_.expires_after(config_.undecided_limit);
    sweep_.async_wait([this](error_code stopped) {
      if (stopped) return;
      sweeping_ = false;
      for (Newcomer& newcomer : newcomers_) {
        if (newcomer.size == 0 && store_on_) continue;
        error_code ignored;
        if (Clock::now() - newcomer.since >= config_.undecided_limit) newcomer.socket.close(ignored);
        sweep_soon();
      }
    });
  }

  void hand_over(Place newcomer) {
    std::string peer = address_of(newcomer->socket);
    error_code error;
    const int fd = newcomer->socket.release(error);
    std::string bytes(newcomer->bytes.data(), newcomer->size);
    newcomers_.erase(newcomer);
    if (error) return;
    if (config_.on_control) {
      config_.on_control(fd, std::move(bytes), std::move(peer));
    } else {
      ::close(fd);
    }
  }

  Config config_;
  std::uint16_t port_ = 0;
  bool store_on_;

  asio::io_context io_{1};
  store::StoreServer server_;
  std::list<Listener> listeners_;
  std::list<Newcomer> newcomers_;
  asio::steady_timer sweep_{io_};
  bool sweeping_ = false;
  std::thread thread_;
};

NetThread::NetThread(std::unique_ptr<Loop> loop) : loop_(std::move(loop)) {}
NetThread::~NetThread() = default;

Result<std::unique_ptr<NetThread>> NetThread::open(Config config) {
  kernel::raise_open_file_limit();
  std::unique_ptr<Loop> loop;
  try {
    loop = std::make_unique<Loop>(std::move(config));
  } catch (const boost::system::system_error& error) {
    return Error{Errc::failed, std::string("cannot open the net thread's descriptors: ") + error.what()};
  }
  if (const Result<> bound = loop->bind(); !bound) return bound.error();
  loop->start();
  return std::unique_ptr<NetThread>(new NetThread(std::move(loop)));
}

std::uint16_t NetThread::port() const { return loop_->port(); }
void NetThread::reset_store(std::function<void()> done) { loop_->reset_store(std::move(done)); }
bool NetThread::store_was_used() const { return loop_->was_used(); }
void NetThread::store_enabled(bool on) { loop_->store_enabled(on); }

}  // namespace dlaunch
