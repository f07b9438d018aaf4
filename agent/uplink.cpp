#include "agent/uplink.hpp"

#include <boost/asio/ip/address.hpp>

#include "dlaunch/log.hpp"
#include "dlaunch/text.hpp"

namespace dlaunch {

namespace asio = boost::asio;
using asio::ip::tcp;
using namespace std::chrono_literals;

namespace {

constexpr auto kNameLimit = 5s;
constexpr auto kConnectLimit = 5s;
constexpr auto kAnswerLimit = 15s;  // for the word after Hello; node 0 may probe an older claim first
constexpr auto kPause = 250ms;
constexpr auto kFirstWord = 3s;
constexpr auto kNextWord = 10s;
constexpr auto kLateTimer = 1s;

}  // namespace

std::string time_left(std::chrono::steady_clock::duration left) {
  auto seconds = std::max<std::int64_t>(0, std::chrono::duration_cast<std::chrono::seconds>(left).count());
  std::string text = seconds >= 60 ? std::to_string(seconds / 60) + " min " : "";
  return text + std::to_string(seconds % 60) + " s";
}

Uplink::Uplink(asio::io_context& io, const Job& job, Events events)
    : io_(io),
      job_(job),
      events_(std::move(events)),
      resolver_(io.get_executor()),
      socket_(io),
      pause_(io),
      try_limit_(io),
      watch_(io),
      deadline_(Clock::now() + job.join_timeout),
      next_word_(Clock::now() + kFirstWord) {}

std::string Uplink::where() const {
  bool six = job_.master_addr.find(':') != std::string::npos && job_.master_addr.front() != '[';
  return (six ? "[" + job_.master_addr + "]" : job_.master_addr) + ":" + std::to_string(job_.master_port);
}

void Uplink::start(control::Hello hello) {
  hello_ = std::move(hello);
  look_up();
  watch_time();
}

// --- coming together ---

void Uplink::look_up() {
  resolver_.ask(job_.master_addr, kNameLimit, [this](Result<Addresses> answer) {
    if (over_) return;
    if (!answer) return try_again(answer.error().text);
    if (events_.looked_up(*answer)) return leave("");
    connect(std::move(*answer), 0);
  });
}

void Uplink::connect(Addresses addresses, std::size_t index) {
  if (over_) return;
  if (index >= addresses.size()) return try_again(trouble_);
  boost::system::error_code error;
  auto address = asio::ip::make_address(addresses[index], error);
  socket_ = tcp::socket(io_);
  try_limit_.expires_after(kConnectLimit);
  try_limit_.async_wait([this](boost::system::error_code cancelled) {
    boost::system::error_code ignored;
    if (!cancelled) socket_.close(ignored);
  });
  socket_.async_connect({address, job_.master_port},
                        [this, addresses, index](boost::system::error_code failure) {
                          bool in_time = try_limit_.cancel() > 0;
                          if (over_) return;
                          if (!failure) return connected();
                          trouble_ = in_time ? failure.message() : "no answer in 5 s";
                          for (char& c : trouble_)
                            c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
                          connect(addresses, index + 1);
                        });
}

void Uplink::connected() {
  std::erase_if(sessions_, [](const auto& session) { return session->over(); });
  sessions_.push_back(
      std::make_unique<control::Session>(std::move(socket_), std::string(), job_.heartbeat_timeout));
  auto& session = *sessions_.back();
  last_heard_ = Clock::now();
  trouble_ = "it is connected, but gives no answer: is that a dlaunch?";
  session.start(
      [this, &session](control::Message message) {
        if (!over_ && &session == sessions_.back().get()) received(std::move(message));
      },
      [this, &session](std::string why) {
        if (!over_ && &session == sessions_.back().get()) ended(std::move(why));
      });
  session.send_raw(std::string(control::kMagic));
  session.send(hello_);
}

void Uplink::try_again(std::string why) {
  trouble_ = std::move(why);
  pause_.expires_after(kPause);
  pause_.async_wait([this](boost::system::error_code error) {
    if (!error && !over_) look_up();
  });
}

void Uplink::received(control::Message message) {
  last_heard_ = Clock::now();
  if (const auto* ping = std::get_if<control::Ping>(&message)) {
    silence_ = heartbeat_;
    return send(control::Pong{ping->id});
  }
  if (const auto* refused = std::get_if<control::Refused>(&message)) {
    if (!refused->retry)
      return fail(2, "node 0 at " + where() + " refused this node: " + visible(refused->reason));
    trouble_ = visible(refused->reason);
    return;  // its end of the connection follows
  }
  if (const auto* welcome = std::get_if<control::Welcome>(&message)) {
    welcomed_ = true;
    heartbeat_ = silence_ = std::chrono::milliseconds(welcome->heartbeat_ms);
  }
  // Starting workers from a slow file system keeps node 0 busy; its next ping says that it is done.
  if (std::get_if<control::Start>(&message))
    silence_ = std::max<std::chrono::milliseconds>(job_.join_timeout, heartbeat_);
  events_.message(std::move(message));
}

void Uplink::ended(std::string why) {
  if (welcomed_) return fail(125, "node 0 (" + where() + ") lost: " + why);
  try_again(trouble_.rfind("it is connected", 0) == 0 ? why : trouble_);
}

// --- time ---

void Uplink::watch_time() {
  auto now = Clock::now();
  if (watch_expected_ != Clock::time_point{} && now - watch_expected_ > kLateTimer) last_heard_ = now;
  if (!welcomed_) {
    if (now >= deadline_) {
      return fail(124, "timed out after " + std::to_string(job_.join_timeout.count()) +
                           " s (--join_timeout) waiting for node 0 at " + where() + ": " + trouble_);
    }
    bool connected =
        !sessions_.empty() && last_heard_ + kAnswerLimit <= now && trouble_.rfind("it is connected", 0) == 0;
    if (connected) sessions_.back()->close_now();
    if (now >= next_word_) {
      next_word_ = now + kNextWord;
      log::say("waiting for node 0 at " + where() + " (" + trouble_ + "), " + time_left(deadline_ - now) +
               " left");
    }
  } else if (now - last_heard_ >= silence_) {
    auto seconds = std::chrono::duration_cast<std::chrono::seconds>(silence_).count();
    return fail(125, "node 0 (" + where() + ") lost: nothing heard for " + std::to_string(seconds) +
                         " s (--heartbeat_timeout)");
  }
  watch_expected_ = std::min(now + 1s, welcomed_ ? last_heard_ + silence_ : deadline_);
  watch_.expires_at(watch_expected_);
  watch_.async_wait([this](boost::system::error_code error) {
    if (!error && !over_) watch_time();
  });
}

// --- the end ---

void Uplink::send(const control::Message& message) {
  if (!over_ && !sessions_.empty()) sessions_.back()->send(message);
}

void Uplink::fail(int exit_code, std::string why) {
  if (over_) return;
  leave("");
  events_.failed(exit_code, std::move(why));
}

void Uplink::leave(std::string reason) {
  if (over_) return;
  send(control::Bye{std::move(reason)});
  over_ = true;
  if (!sessions_.empty()) sessions_.back()->close_when_sent();
  boost::system::error_code ignored;
  socket_.close(ignored);
  pause_.cancel();
  try_limit_.cancel();
  watch_.cancel();
  resolver_.cancel();
}

}  // namespace dlaunch
