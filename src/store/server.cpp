#include "dlaunch/store/server.hpp"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>

namespace dlaunch::store {
namespace {

namespace asio = boost::asio;

constexpr std::size_t kReadBytes = 64 << 10;
constexpr int kEvents = 256;

// How often the set is looked at before Asio's other work has its turn, and how often one session is read
// before the other sessions have theirs.
constexpr int kTurns = 16;
constexpr int kReadsInARow = 8;

// Values up to this size are copied into one buffer with their length, larger ones are shared.
constexpr std::size_t kCopied = 16 << 10;

// So much may be queued before a write is tried, and then no request is decoded until it is gone.
constexpr std::size_t kQueued = 1 << 20;

// Only a client that watches keys and does not read can get here.
constexpr std::size_t kTooSlow = 64 << 20;

constexpr std::size_t kPiecesInOneWrite = 64;
constexpr std::size_t kIdleReplies = 1024;

}  // namespace

class StoreServer::Session {
 public:
  Session(SessionId number, int socket, const ProtocolLimits& limits) : id(number), fd(socket), decoder(limits) {}
  ~Session() {
    if (fd >= 0) ::close(fd);
  }

  // What the socket did not take yet.
  struct Piece {
    std::string text;
    Bytes shared;
    std::string_view view() const { return text.empty() ? shared.view() : std::string_view(text); }
  };

  void append(std::string_view bytes) {
    if (bytes.empty()) return;
    if (out.empty() || out.back().text.empty()) out.emplace_back();
    out.back().text.append(bytes);
    queued += bytes.size();
  }
  void append(const Bytes& shared) {
    if (shared.size() <= kCopied) return append(shared.view());
    out.emplace_back().shared = shared;
    queued += shared.size();
  }
  void take_off(std::size_t count) {
    queued -= count;
    sent += count;
    while (first < out.size() && sent >= out[first].view().size()) {
      sent -= out[first].view().size();
      out[first++] = Piece();
    }
    if (first == out.size()) drop_queue();
  }
  void drop_queue() {
    out.clear();
    if (out.capacity() > 2 * kPiecesInOneWrite) out.shrink_to_fit();
    first = sent = queued = 0;
  }

  const SessionId id;
  int fd;
  bool closed = false;
  bool asked = false;    // has sent a whole request
  bool blocked = false;  // is not read until the socket has taken what is queued
  bool touched = false;
  Decoder decoder;
  std::vector<Piece> out;
  std::size_t first = 0;   // in `out`, of those not sent
  std::size_t sent = 0;    // bytes of that one
  std::size_t queued = 0;  // bytes not sent
};

StoreServer::StoreServer(asio::io_context& io, ServerLimits limits)
    : limits_(limits),
      table_(limits.table),
      set_(io, ::epoll_create1(EPOLL_CLOEXEC)),
      silence_(io),
      buffer_(kReadBytes) {
  await_sessions();
}

StoreServer::~StoreServer() = default;

void StoreServer::adopt(Socket socket, std::string first_bytes) {
  boost::system::error_code error;
  const int fd = socket.release(error);
  if (error) return;
  const int on = 1;
  ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  ::fcntl(fd, F_SETFL, ::fcntl(fd, F_GETFL) | O_NONBLOCK);
  SessionId id = 0;
  if (free_.empty()) {
    id = static_cast<SessionId>(slots_.size());
    slots_.emplace_back();
  } else {
    id = free_.back();
    free_.pop_back();
  }
  slots_[id] = std::make_unique<Session>(id, fd, limits_.protocol);
  table_.open(id);
  ++open_;
  Session& session = *slots_[id];
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u32 = id;
  if (::epoll_ctl(set_.native_handle(), EPOLL_CTL_ADD, fd, &event)) {
    close(session);
  } else if (!first_bytes.empty()) {
    take(session, first_bytes);
  }
  bury();
}

void StoreServer::reset() {
  for (const auto& session : slots_) {
    if (session) close(*session);
  }
  bury();
  table_.clear();
  ever_ = 0;
}

void StoreServer::close(Session& session) {
  if (session.closed) return;
  session.closed = true;
  table_.close(session.id);
  // A child that was forked a moment ago and has not called exec yet holds the socket too: closing it alone
  // would leave it in the set, and the client would not hear of it.
  ::epoll_ctl(set_.native_handle(), EPOLL_CTL_DEL, session.fd, nullptr);
  ::shutdown(session.fd, SHUT_RDWR);
  ::close(std::exchange(session.fd, -1));
  session.drop_queue();
  --open_;
  dead_.push_back(session.id);
}

// A number may be used again only when nobody up the stack can mean the old session by it.
void StoreServer::bury() {
  for (const SessionId id : dead_) {
    slots_[id].reset();
    free_.push_back(id);
  }
  dead_.clear();
}

// --- reading ---

void StoreServer::await_sessions() {
  set_.async_wait(asio::posix::descriptor_base::wait_read, [this](boost::system::error_code error) {
    if (error) return;  // `this` may be gone
    serve_ready();
    await_sessions();
  });
}

void StoreServer::serve_ready() {
  std::array<epoll_event, kEvents> events;
  for (int turn = 0; turn < kTurns; ++turn) {
    const int ready = ::epoll_wait(set_.native_handle(), events.data(), kEvents, 0);
    if (ready <= 0) return;
    for (int i = 0; i < ready; ++i) {
      Session& session = *slots_[events[i].data.u32];
      if (session.closed) continue;
      if (!session.blocked) {
        read(session);
      } else if (flush(session)) {
        block(session, false);
        take(session, {});  // what had been read before
      }
    }
    bury();
  }
}

void StoreServer::read(Session& session) {
  for (int i = 0; i < kReadsInARow && !session.closed && !session.blocked; ++i) {
    const ssize_t got = ::recv(session.fd, buffer_.data(), buffer_.size(), 0);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (got <= 0) return close(session);
    take(session, {buffer_.data(), static_cast<std::size_t>(got)});
    if (static_cast<std::size_t>(got) < buffer_.size()) return;
  }
}

void StoreServer::take(Session& session, std::string_view bytes) {
  session.decoder.feed(bytes);
  decode(session);
}

// Decodes and answers until there is nothing left, or no room for more answers.
void StoreServer::decode(Session& session) {
  Request request;
  Decoder::Step step = Decoder::Step::more;
  while (!session.closed && (step = session.decoder.next(request)) == Decoder::Step::request) {
    if (!session.asked) {
      session.asked = true;
      ++ever_;
    }
    const std::string_view refusal = table_.apply(session.id, request, replies_);
    deliver(session);
    if (!refusal.empty()) {
      step = Decoder::Step::broken;
      break;
    }
    if (scratch_.size() + session.queued > kQueued && !flush_scratch(session)) {
      session.decoder.hold();
      break;
    }
  }
  if (!session.closed) flush_scratch(session);  // what was asked before an offence is answered
  scratch_.clear();
  if (step == Decoder::Step::broken) close(session);
  for (const SessionId id : touched_) {
    Session& other = *slots_[id];
    other.touched = false;
    if (!other.closed && !other.blocked && !flush(other)) block(other, true);
  }
  touched_.clear();
  if (!session.closed && session.decoder.ambiguous()) await_silence(session);
}

// All wait for the same time, so they end in the order in which they began.
void StoreServer::await_silence(Session& session) {
  silences_.emplace_back(Clock::now() + std::chrono::milliseconds(kSilenceMilliseconds), session.id);
  if (!silence_armed_) arm_silence();
}

void StoreServer::arm_silence() {
  silence_armed_ = true;
  silence_.expires_at(silences_.front().first);
  silence_.async_wait([this](boost::system::error_code error) {
    if (error) return;  // `this` may be gone
    silence_armed_ = false;
    end_silences();
    bury();
    if (!silences_.empty()) arm_silence();
  });
}

void StoreServer::end_silences() {
  while (!silences_.empty() && silences_.front().first <= Clock::now()) {
    const auto [deadline, id] = silences_.front();
    silences_.pop_front();
    // Another session may have its number by now, or it has sent more and is silent for the second time;
    // then a later entry means it.
    const auto later = [id = id](const auto& entry) { return entry.second == id; };
    if (!slots_[id] || slots_[id]->closed || !slots_[id]->decoder.ambiguous()) continue;
    if (std::any_of(silences_.begin(), silences_.end(), later)) continue;
    slots_[id]->decoder.silence();
    decode(*slots_[id]);
  }
}

// --- answering ---

void StoreServer::deliver(Session& asking) {
  for (const Reply& reply : replies_) {
    if (reply.to == asking.id) {
      if (asking.out.empty() && reply.body.size() <= kCopied) {
        scratch_.append(reply.head_view()).append(reply.body.view());
        continue;
      }
      asking.append(scratch_);
      scratch_.clear();
      queue(asking, reply);
      continue;
    }
    Session& other = *slots_[reply.to];
    queue(other, reply);
    if (!other.touched) {
      other.touched = true;
      touched_.push_back(other.id);
    }
  }
  replies_.clear();
  if (replies_.capacity() > kIdleReplies) replies_.shrink_to_fit();
}

void StoreServer::queue(Session& session, const Reply& reply) {
  if (session.closed) return;
  session.append(reply.head_view());
  session.append(reply.body);
  if (session.queued > kTooSlow && session.blocked) close(session);
}

// The answers to the session in hand: one write, and the rest is queued. False: it is blocked or gone.
bool StoreServer::flush_scratch(Session& session) {
  if (session.out.empty() && !scratch_.empty()) {
    const ssize_t sent = ::send(session.fd, scratch_.data(), scratch_.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent == static_cast<ssize_t>(scratch_.size())) {
      scratch_.clear();
      return true;
    }
    if (sent < 0 && errno != EAGAIN && errno != EINTR) {
      close(session);
      return false;
    }
    if (sent > 0) scratch_.erase(0, static_cast<std::size_t>(sent));
  }
  session.append(scratch_);
  scratch_.clear();
  if (scratch_.capacity() > 2 * kQueued) scratch_.shrink_to_fit();
  if (session.blocked) return false;
  if (flush(session)) return true;
  block(session, true);
  return false;
}

// Writes what is queued. False: the socket is full (or gone).
bool StoreServer::flush(Session& session) {
  while (!session.out.empty()) {
    std::array<iovec, kPiecesInOneWrite> pieces;
    std::size_t count = 0;
    for (std::size_t i = session.first; i < session.out.size() && count < pieces.size(); ++i) {
      std::string_view bytes = session.out[i].view();
      if (count == 0) bytes.remove_prefix(session.sent);
      pieces[count++] = {const_cast<char*>(bytes.data()), bytes.size()};
    }
    msghdr message{};
    message.msg_iov = pieces.data();
    message.msg_iovlen = count;
    const ssize_t sent = ::sendmsg(session.fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent >= 0) {
      session.take_off(static_cast<std::size_t>(sent));
    } else if (errno == EAGAIN) {
      return false;
    } else if (errno != EINTR) {
      close(session);
      return false;
    }
  }
  return true;
}

void StoreServer::block(Session& session, bool blocked) {
  if (session.closed || session.blocked == blocked) return;
  session.blocked = blocked;
  epoll_event event{};
  event.events = blocked ? EPOLLOUT : EPOLLIN;
  event.data.u32 = session.id;
  ::epoll_ctl(set_.native_handle(), EPOLL_CTL_MOD, session.fd, &event);
}

}  // namespace dlaunch::store
