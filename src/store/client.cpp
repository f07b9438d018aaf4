#include "dlaunch/store/client.hpp"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <thread>

#include "dlaunch/store/protocol.hpp"

namespace dlaunch::store {
namespace {

using Clock = std::chrono::steady_clock;

// No value of the protocol is near it; appended ones may grow.
constexpr std::uint64_t kMaxAnswer = std::uint64_t{1} << 30;

constexpr std::chrono::milliseconds kFirstPause{5};
constexpr std::chrono::milliseconds kLongestPause{500};

template <class Integer>
std::string raw(Integer value) {
  return std::string(reinterpret_cast<const char*>(&value), sizeof value);
}

std::string vec(std::string_view text) { return raw(std::uint64_t{text.size()}).append(text); }
std::string key_of(std::string_view key) {
  return raw(std::uint64_t{key.size() + 1}).append("/").append(key);
}

// The codes of dialect 2 follow the order of Op from 1 on, without WATCH_KEY.
std::string code(Op op) {
  const int number = static_cast<int>(op) + 1 - (op > Op::watch_key ? 1 : 0);
  return std::string(1, static_cast<char>(number));
}

std::string keys_of(const StoreClient::Keys& keys) {
  std::string out = raw(std::uint64_t{keys.size()});
  for (const std::string& key : keys) out += key_of(key);
  return out;
}

std::string list_of(const StoreClient::Keys& keys) {
  if (keys.empty()) return "no keys";
  std::string out = "'" + keys.front() + "'";
  if (keys.size() > 1) out += " and " + std::to_string(keys.size() - 1) + " more";
  return out;
}

// How long poll may take, rounded up so that a deadline is never found early.
int left_until(Clock::time_point deadline) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count();
  return static_cast<int>(std::clamp<long>(left, 0, 1 << 30));
}

// True: ready. False: the deadline has passed.
Result<bool> ready(int fd, short events, Clock::time_point deadline) {
  for (;;) {
    pollfd one{fd, events, 0};
    const int count = ::poll(&one, 1, left_until(deadline));
    if (count > 0) return true;
    if (count == 0 && Clock::now() >= deadline) return false;
    if (count < 0 && errno != EINTR) return last_error("poll");
  }
}

struct Address {
  sockaddr_storage storage{};
  socklen_t size = 0;
};

Result<Address> address_of(const std::string& host, std::uint16_t port) {
  Address out;
  auto* four = reinterpret_cast<sockaddr_in*>(&out.storage);
  auto* six = reinterpret_cast<sockaddr_in6*>(&out.storage);
  if (::inet_pton(AF_INET, host.c_str(), &four->sin_addr) == 1) {
    four->sin_family = AF_INET;
    four->sin_port = htons(port);
    out.size = sizeof *four;
  } else if (::inet_pton(AF_INET6, host.c_str(), &six->sin6_addr) == 1) {
    six->sin6_family = AF_INET6;
    six->sin6_port = htons(port);
    out.size = sizeof *six;
  } else {
    return Error{Errc::usage, "'" + host + "' is no IPv4 or IPv6 address"};
  }
  return out;
}

// One attempt.
Result<int> dial(const Address& address, Clock::time_point deadline) {
  const int fd = ::socket(address.storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd < 0) return last_error("socket");
  const auto fail = [fd](Error error) {
    ::close(fd);
    return error;
  };
  const int on = 1;
  ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  if (::connect(fd, reinterpret_cast<const sockaddr*>(&address.storage), address.size)) {
    if (errno != EINPROGRESS) return fail(last_error("connect", Errc::unreachable));
    const auto writable = ready(fd, POLLOUT, deadline);
    if (!writable) return fail(writable.error());
    if (!*writable) return fail(Error{Errc::unreachable, "connect: no answer"});
    int error = 0;
    socklen_t size = sizeof error;
    ::getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size);
    if (error) {
      errno = error;
      return fail(last_error("connect", Errc::unreachable));
    }
  }
  return fd;
}

}  // namespace

Result<StoreClient> StoreClient::connect(const std::string& host, std::uint16_t port, Milliseconds limit,
                                         Milliseconds answer) {
  const auto address = address_of(host, port);
  if (!address) return address.error();
  const Deadline deadline = Clock::now() + limit;
  Deadline patience = deadline;
  Milliseconds pause = kFirstPause;
  for (;;) {
    Error error;
    if (auto fd = dial(*address, deadline); fd) {
      StoreClient client(*fd, answer);
      const Result<> greeted = client.greet(std::min(deadline, Clock::now() + answer));
      if (greeted) return client;
      error = greeted.error();
    } else {
      error = fd.error();
    }
    const bool stranger = error.code == Errc::refused || error.code == Errc::bad_frame;
    patience = stranger ? std::min(patience, Clock::now() + answer) : deadline;
    if (Clock::now() + pause >= patience) {
      return std::move(error).under("no store at " + host + " port " + std::to_string(port));
    }
    std::this_thread::sleep_for(pause);
    pause = std::min(pause * 2, kLongestPause);
  }
}

StoreClient::StoreClient(StoreClient&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)),
      answer_(other.answer_),
      in_(std::move(other.in_)),
      why_broken_(std::move(other.why_broken_)) {}

StoreClient& StoreClient::operator=(StoreClient&& other) noexcept {
  std::swap(fd_, other.fd_);
  std::swap(answer_, other.answer_);
  std::swap(in_, other.in_);
  std::swap(why_broken_, other.why_broken_);
  return *this;
}

StoreClient::~StoreClient() {
  if (fd_ >= 0) ::close(fd_);
}

Result<> StoreClient::greet(Deadline deadline) {
  const std::string nonce = raw(static_cast<std::uint32_t>(::getpid()));
  if (Result<> sent = send(std::string(1, '\0') + raw(kMagic) + code(Op::ping) + nonce); !sent) return sent;
  if (Result<> got = receive(nonce.size(), deadline); !got) {
    if (got.error().code == Errc::unreachable) return Error{Errc::refused, got.error().text};
    return got;
  }
  if (in_ != nonce) return broken(Error{Errc::bad_frame, "the peer is no store: its echo is wrong"});
  in_.clear();
  return {};
}

// --- bytes ---

Error StoreClient::broken(Error error) {
  why_broken_ = error.text;
  return error;
}

Result<> StoreClient::send(std::string_view bytes) {
  if (!why_broken_.empty()) return Error{Errc::unreachable, "the store's connection failed: " + why_broken_};
  const Deadline deadline = Clock::now() + answer_;
  while (!bytes.empty()) {
    const ssize_t sent = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent >= 0) {
      bytes.remove_prefix(static_cast<std::size_t>(sent));
      continue;
    }
    if (errno == EINTR) continue;
    if (errno != EAGAIN) return broken(last_error("send", Errc::unreachable));
    const auto writable = ready(fd_, POLLOUT, deadline);
    if (!writable) return broken(writable.error());
    if (!*writable) return broken(Error{Errc::unreachable, "the store takes no more bytes"});
  }
  return {};
}

Result<> StoreClient::receive(std::size_t count, Deadline deadline) {
  while (in_.size() < count) {
    char buffer[16 << 10];
    const ssize_t got = ::recv(fd_, buffer, sizeof buffer, 0);
    if (got > 0) {
      in_.append(buffer, static_cast<std::size_t>(got));
      continue;
    }
    if (got == 0) return broken(Error{Errc::unreachable, "the store closed the connection"});
    if (errno == EINTR) continue;
    if (errno != EAGAIN) return broken(last_error("recv", Errc::unreachable));
    const auto readable = ready(fd_, POLLIN, deadline);
    if (!readable) return broken(readable.error());
    if (!*readable) return Error{Errc::timed_out, "no answer from the store"};
  }
  return {};
}

Result<std::int64_t> StoreClient::receive_number() {
  // Half an answer would be taken for the next one.
  if (Result<> got = receive(8, Clock::now() + answer_); !got) return broken(got.error());
  std::int64_t value = 0;
  std::memcpy(&value, in_.data(), 8);
  in_.erase(0, 8);
  return value;
}

Result<std::string> StoreClient::receive_string() {
  const auto length = receive_number();
  if (!length) return length.error();
  const auto size = static_cast<std::uint64_t>(*length);
  if (size > kMaxAnswer)
    return broken(Error{Errc::bad_frame, "an answer of " + std::to_string(size) + " bytes"});
  if (Result<> got = receive(size, Clock::now() + answer_); !got) return broken(got.error());
  std::string value = in_.substr(0, size);
  in_.erase(0, size);
  return value;
}

Result<std::uint8_t> StoreClient::receive_byte(Deadline deadline) {
  if (Result<> got = receive(1, deadline); !got) return got.error();
  const auto value = static_cast<std::uint8_t>(in_.front());
  in_.erase(0, 1);
  return value;
}

// Sends a request that is answered when something happens, and gives up in a way that leaves the stream
// in order: the cancelled wait may have been answered just before.
Result<> StoreClient::await(std::string_view request, Milliseconds limit, std::string_view what) {
  constexpr auto kStop = static_cast<std::uint8_t>(WaitAnswer::stop_waiting);
  constexpr auto kCanceled = static_cast<std::uint8_t>(WaitAnswer::wait_canceled);
  if (Result<> sent = send(request); !sent) return sent;
  auto answer = receive_byte(Clock::now() + limit);
  if (answer && *answer == kStop) return {};
  if (answer) return broken(Error{Errc::bad_frame, "a wait answered by " + std::to_string(*answer)});
  if (answer.error().code != Errc::timed_out) return answer.error();

  if (Result<> sent = send(code(Op::cancel_wait)); !sent) return sent;
  bool came = false;
  do {
    answer = receive_byte(Clock::now() + answer_);
    if (!answer) return broken(answer.error());
    came = came || *answer == kStop;
  } while (*answer != kCanceled);
  if (came) return {};
  return Error{Errc::timed_out,
               std::string(what) + " did not come within " + std::to_string(limit.count()) + " ms"};
}

// --- requests ---

Result<> StoreClient::set(std::string_view key, std::string_view value) {
  return send(code(Op::set) + key_of(key) + vec(value));
}

Result<std::string> StoreClient::get(std::string_view key, Milliseconds limit) {
  if (Result<> came = wait({std::string(key)}, limit); !came) return came.error();
  if (Result<> sent = send(code(Op::get) + key_of(key)); !sent) return sent.error();
  return receive_string();
}

Result<std::int64_t> StoreClient::add(std::string_view key, std::int64_t delta) {
  if (Result<> sent = send(code(Op::add) + key_of(key) + raw(delta)); !sent) return sent.error();
  return receive_number();
}

Result<std::int64_t> StoreClient::join() {
  if (Result<> sent = send(code(Op::add) + vec("init/") + raw(std::int64_t{1})); !sent) return sent.error();
  return receive_number();
}

Result<bool> StoreClient::check(const Keys& keys) {
  if (Result<> sent = send(code(Op::check) + keys_of(keys)); !sent) return sent.error();
  const auto answer = receive_byte(Clock::now() + answer_);
  if (!answer) return broken(answer.error());
  return *answer == 0;
}

Result<> StoreClient::wait(const Keys& keys, Milliseconds limit) {
  return await(code(Op::wait) + keys_of(keys), limit, list_of(keys));
}

Result<std::string> StoreClient::compare_set(std::string_view key, std::string_view expected,
                                             std::string_view desired) {
  if (Result<> sent = send(code(Op::compare_set) + key_of(key) + vec(expected) + vec(desired)); !sent) {
    return sent.error();
  }
  return receive_string();
}

Result<bool> StoreClient::delete_key(std::string_view key) {
  if (Result<> sent = send(code(Op::delete_key) + key_of(key)); !sent) return sent.error();
  const auto answer = receive_number();
  if (!answer) return answer.error();
  return *answer > 0;
}

Result<std::int64_t> StoreClient::num_keys() {
  if (Result<> sent = send(code(Op::num_keys)); !sent) return sent.error();
  return receive_number();
}

Result<> StoreClient::append(std::string_view key, std::string_view tail) {
  return send(code(Op::append) + key_of(key) + vec(tail));
}

Result<std::vector<std::string>> StoreClient::multi_get(const Keys& keys, Milliseconds limit) {
  if (Result<> came = wait(keys, limit); !came) return came.error();
  if (Result<> sent = send(code(Op::multi_get) + keys_of(keys)); !sent) return sent.error();
  std::vector<std::string> values;
  for (std::size_t i = 0; i < keys.size(); ++i) {
    auto value = receive_string();
    if (!value) return value.error();
    values.push_back(std::move(*value));
  }
  return values;
}

Result<> StoreClient::multi_set(const std::vector<std::pair<std::string, std::string>>& pairs) {
  std::string request = code(Op::multi_set) + raw(std::uint64_t{pairs.size()});
  for (const auto& [key, value] : pairs) request += key_of(key) + vec(value);
  return send(request);
}

Result<> StoreClient::queue_push(std::string_view name, std::string_view value) {
  return send(code(Op::queue_push) + key_of(name) + vec(value));
}

Result<std::string> StoreClient::queue_pop(std::string_view name, Milliseconds limit) {
  const Deadline deadline = Clock::now() + limit;
  for (;;) {
    const auto left = std::chrono::duration_cast<Milliseconds>(deadline - Clock::now());
    if (Result<> came = wait({std::string(name)}, std::max(left, Milliseconds(0))); !came)
      return came.error();
    if (Result<> sent = send(code(Op::queue_pop) + key_of(name)); !sent) return sent.error();
    const auto before = receive_number();
    if (!before) return before.error();
    if (*before > 0) return receive_string();
    // Another client was faster, or there is a key of that name; ours may still come.
    if (Clock::now() >= deadline)
      return Error{Errc::timed_out, "nothing in the queue '" + std::string(name) + "'"};
  }
}

Result<std::int64_t> StoreClient::queue_len(std::string_view name) {
  if (Result<> sent = send(code(Op::queue_len) + key_of(name)); !sent) return sent.error();
  return receive_number();
}

Result<std::vector<std::string>> StoreClient::list_keys() {
  if (Result<> sent = send(code(Op::list_keys)); !sent) return sent.error();
  const auto count = receive_number();
  if (!count) return count.error();
  std::vector<std::string> keys;
  for (std::int64_t i = 0; i < *count; ++i) {
    auto key = receive_string();
    if (!key) return key.error();
    if (key->starts_with('/')) key->erase(0, 1);
    keys.push_back(std::move(*key));
  }
  return keys;
}

Result<> StoreClient::barrier(std::string_view key, std::int64_t world_size, Milliseconds limit) {
  return await(code(Op::barrier) + key_of(key) + raw(world_size), limit,
               "the barrier '" + std::string(key) + "' of " + std::to_string(world_size));
}

}  // namespace dlaunch::store
