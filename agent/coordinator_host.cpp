#include "agent/coordinator_host.hpp"

#include <unistd.h>

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>

#include "agent/meeting.hpp"
#include "dlaunch/log.hpp"

namespace dlaunch {

namespace asio = boost::asio;
using asio::ip::tcp;

namespace {

constexpr std::chrono::seconds kHelloLimit{15};

}  // namespace

CoordinatorHost::CoordinatorHost(asio::io_context& io, const Job& job, Events events)
    : io_(io), job_(job), events_(std::move(events)), coordinator_(job, Clock::now()), timer_(io) {}

Result<> CoordinatorHost::open() {
  bool store = job_.store == StoreHost::agent;
  bool alone = job_.nnodes == 1;
  if (independent_copies(job_) || (alone && !store)) return {};
  NetThread::Config config;
  config.addresses = listening_addresses(job_);
  config.port = job_.master_port;
  config.store = store;
  config.on_control = [this](int fd, std::string first_bytes, std::string) {
    asio::post(io_, [this, fd, bytes = std::move(first_bytes)]() mutable { accept(fd, std::move(bytes)); });
  };
  auto net = NetThread::open(std::move(config));
  if (!net) return net.error();
  net_ = std::move(*net);
  return {};
}

void CoordinatorHost::accept(int fd, std::string first_bytes) {
  tcp::socket socket(io_);
  boost::system::error_code error;
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  bool six =
      ::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) == 0 && address.ss_family == AF_INET6;
  socket.assign(six ? tcp::v6() : tcp::v4(), fd, error);
  if (error) {
    ::close(fd);
    return;
  }
  first_bytes.erase(0, control::kMagic.size());
  Peer peer = next_peer_++;
  auto session =
      std::make_unique<control::Session>(std::move(socket), std::move(first_bytes), job_.heartbeat_timeout);
  auto& kept = *(sessions_[peer] = std::move(session));
  silent_[peer] = Clock::now();
  kept.start(
      [this, peer, &kept](control::Message message) {
        silent_.erase(peer);
        coordinator_.set_round_trip(peer, kept.round_trip());
        perform(coordinator_.received(peer, message, Clock::now()));
      },
      [this, peer](std::string why) {
        sessions_.erase(peer);
        silent_.erase(peer);
        perform(coordinator_.lost(peer, why, Clock::now()));
      });
}

void CoordinatorHost::from_own_agent(const control::Message& message) {
  perform(coordinator_.received(0, message, Clock::now()));
}

void CoordinatorHost::give_up(const std::string& reason) {
  perform(coordinator_.give_up(reason, Clock::now()));
}

void CoordinatorHost::perform(Actions actions) {
  for (const auto& action : actions) {
    std::visit([this](const auto& one) { perform_one(one); }, action);
  }
  arm();
}

void CoordinatorHost::perform_one(const SendTo& action) {
  if (action.peer == 0) {
    // Never from inside the agent's own call.
    asio::post(io_, [this, message = action.message] { events_.to_own_agent(message); });
  } else if (auto session = sessions_.find(action.peer); session != sessions_.end()) {
    session->second->send(action.message);
  }
}

void CoordinatorHost::perform_one(const Drop& action) {
  if (auto session = sessions_.find(action.peer); session != sessions_.end())
    session->second->close_when_sent();
}

void CoordinatorHost::perform_one(const Say& action) { log::say(action.sentence); }

void CoordinatorHost::perform_one(const PrepareRound& action) {
  auto ready = [this](std::uint16_t port) { perform(coordinator_.round_ready(port, Clock::now())); };
  if (job_.store == StoreHost::worker && !independent_copies(job_)) {
    bool alone = job_.nnodes == 1;
    std::uint16_t wanted = job_.store_port ? job_.store_port : alone ? job_.master_port : 0;
    store_port_.reset();
    auto held = HeldPort::hold(wanted);
    if (!held) return asio::post(io_, [this, why = held.error().text] { give_up(why); });
    store_port_ = std::move(*held);
    return asio::post(io_, [ready, port = store_port_->port()] { ready(port); });
  }
  if (!net_ || action.round == 0) return asio::post(io_, [ready, port = port()] { ready(port); });
  // Runs on the net thread once the old round's keys and sessions are gone.
  net_->reset_store([this, ready, port = port()] { asio::post(io_, [ready, port] { ready(port); }); });
}

void CoordinatorHost::perform_one(const Over&) {
  over_ = true;
  timer_.cancel();
  for (auto& [peer, session] : sessions_) session->close_when_sent();
  asio::post(io_, [this] { events_.over(); });
}

// Who opens a control connection and says nothing is no agent.
void CoordinatorHost::close_silent() {
  auto now = Clock::now();
  for (const auto& [peer, since] : silent_) {
    if (now - since >= kHelloLimit) sessions_.at(peer)->close_now();
  }
}

void CoordinatorHost::arm() {
  if (over_) return;
  auto next = coordinator_.next_tick();
  if (armed_ == next) return;
  armed_ = next;
  timer_.expires_at(next);
  timer_.async_wait([this](boost::system::error_code error) {
    if (error || over_) return;
    auto due = *std::exchange(armed_, std::nullopt);
    close_silent();
    perform(coordinator_.tick(Clock::now(), due));
  });
}

}  // namespace dlaunch
