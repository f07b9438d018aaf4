#include "dlaunch/store/server.hpp"

#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <boost/asio/buffer.hpp>
#include <boost/asio/steady_timer.hpp>
#include <cerrno>
#include <chrono>

namespace dlaunch::store {
namespace {

namespace asio = boost::asio;

// Most requests are shorter than this, and there may be many thousand sessions.
constexpr std::size_t kNarrow = 512;
constexpr std::size_t kWide = 256 << 10;

// A session that sends much is read this often before the others have their turn.
constexpr int kReadsInARow = 8;

// Values up to this size are copied into one buffer with their length, larger ones are shared.
constexpr std::size_t kCopied = 16 << 10;

// So much may be queued before a write is tried, and then no request is decoded until it is gone.
constexpr std::size_t kQueued = 1 << 20;

// Only a client that watches keys and does not read can get here.
constexpr std::size_t kTooSlow = 64 << 20;

constexpr std::size_t kPiecesInOneWrite = 64;

}  // namespace

class StoreServer::Session {
 public:
  Session(SessionId number, Socket connected, const ProtocolLimits& limits)
      : id(number), socket(std::move(connected)), decoder(limits) {}

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
  Socket socket;
  Decoder decoder;
  std::array<char, kNarrow> narrow;
  std::vector<Piece> out;
  std::size_t first = 0;   // in `out`, of those not sent
  std::size_t sent = 0;    // bytes of that one
  std::size_t queued = 0;  // bytes not sent
  int handlers = 0;        // that will still be called
  bool closed = false;
  bool asked = false;      // has sent a whole request
  bool reading = false;
  bool blocked = false;    // waits until the socket takes more
  bool touched = false;
  std::unique_ptr<asio::steady_timer> silence;  // made when needed, which is hardly ever
};

StoreServer::StoreServer(asio::io_context& io, ServerLimits limits)
    : io_(io), limits_(limits), table_(limits.table), wide_(kWide) {}

StoreServer::~StoreServer() = default;

void StoreServer::adopt(Socket socket, std::string first_bytes) {
  boost::system::error_code ignored;
  socket.set_option(asio::ip::tcp::no_delay(true), ignored);
  socket.native_non_blocking(true, ignored);
  SessionId id = 0;
  if (free_.empty()) {
    id = static_cast<SessionId>(slots_.size());
    slots_.emplace_back();
  } else {
    id = free_.back();
    free_.pop_back();
  }
  slots_[id] = std::make_unique<Session>(id, std::move(socket), limits_.protocol);
  table_.open(id);
  ++open_;
  Session& session = *slots_[id];
  if (!first_bytes.empty()) serve(session, first_bytes);
  read(session);
  release_if_done(session);
}

void StoreServer::reset() {
  for (std::size_t id = 0; id < slots_.size(); ++id) {
    if (!slots_[id] || slots_[id]->closed) continue;
    close(*slots_[id]);
    release_if_done(*slots_[id]);
  }
  table_.clear();
  ever_ = 0;
}

void StoreServer::close(Session& session) {
  if (session.closed) return;
  session.closed = true;
  table_.close(session.id);
  boost::system::error_code ignored;
  session.socket.close(ignored);
  if (session.silence) session.silence->cancel();
  session.drop_queue();
  --open_;
}

// Its number may be used again only when no handler can mean it any more.
void StoreServer::release_if_done(Session& session) {
  if (!session.closed || session.handlers > 0) return;
  const SessionId id = session.id;
  slots_[id].reset();
  free_.push_back(id);
}

// --- reading ---

void StoreServer::read(Session& session) {
  if (session.closed || session.blocked || session.reading) return;
  session.reading = true;
  ++session.handlers;
  session.socket.async_read_some(asio::buffer(session.narrow),
                                 [this, &session](boost::system::error_code error, std::size_t size) {
                                   --session.handlers;
                                   session.reading = false;
                                   on_read(session, error || size == 0, size);
                                   release_if_done(session);
                                 });
}

void StoreServer::on_read(Session& session, bool failed, std::size_t size) {
  if (session.closed) return;
  if (failed) return close(session);
  serve(session, {session.narrow.data(), size});
  bool full = size == session.narrow.size();
  for (int i = 0; full && i < kReadsInARow && !session.closed && !session.blocked; ++i) {
    const ssize_t got = ::recv(session.socket.native_handle(), wide_.data(), wide_.size(), 0);
    if (got == 0) return close(session);
    if (got < 0) break;  // nothing more now, or an error that the next read will meet
    serve(session, {wide_.data(), static_cast<std::size_t>(got)});
    full = static_cast<std::size_t>(got) == wide_.size();
  }
  read(session);
}

void StoreServer::serve(Session& session, std::string_view bytes) {
  session.decoder.feed(bytes);
  if (session.silence) session.silence->cancel();
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
    replies_.clear();
    if (!refusal.empty()) step = Decoder::Step::broken;
    if (step == Decoder::Step::broken) break;
    if (scratch_.size() + session.queued > kQueued && !flush(session)) {
      session.decoder.hold();
      break;
    }
  }
  // What was asked before the offence has been answered.
  if (!session.closed) flush(session);
  scratch_.clear();
  if (step == Decoder::Step::broken) close(session);
  for (const SessionId id : touched_) {
    Session& other = *slots_[id];
    other.touched = false;
    if (!other.closed && !other.blocked) flush(other);
  }
  touched_.clear();
  if (!session.closed && session.decoder.ambiguous()) await_silence(session);
}

// Waits for more bytes or for kSilenceMilliseconds without any.
void StoreServer::await_silence(Session& session) {
  if (!session.silence) session.silence = std::make_unique<asio::steady_timer>(io_);
  session.silence->expires_after(std::chrono::milliseconds(kSilenceMilliseconds));
  ++session.handlers;
  session.silence->async_wait([this, &session](boost::system::error_code error) {
    --session.handlers;
    if (!error && !session.closed && session.decoder.ambiguous()) {
      session.decoder.silence();
      decode(session);
    }
    release_if_done(session);
  });
}

// --- answering ---

void StoreServer::deliver(Session& asking) {
  for (const Reply& reply : replies_) {
    if (reply.to == asking.id) {
      if (asking.out.empty() && reply.body.size() <= kCopied) {
        scratch_.append(reply.head_view()).append(reply.body.view());
      } else {
        if (!scratch_.empty()) {
          asking.append(scratch_);
          scratch_.clear();
        }
        queue(asking, reply);
      }
      continue;
    }
    Session& other = *slots_[reply.to];
    queue(other, reply);
    if (!other.touched) {
      other.touched = true;
      touched_.push_back(other.id);
    }
  }
}

void StoreServer::queue(Session& session, const Reply& reply) {
  if (session.closed) return;
  session.append(reply.head_view());
  session.append(reply.body);
  if (session.queued > kTooSlow && session.blocked) close(session);
}

// Writes what there is. False: the socket is full (or gone), and the rest waits for room.
bool StoreServer::flush(Session& session) {
  const int fd = session.socket.native_handle();
  if (!scratch_.empty()) {
    if (session.out.empty()) {
      const ssize_t sent = ::send(fd, scratch_.data(), scratch_.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
      if (sent < 0 && errno != EAGAIN && errno != EINTR) {
        scratch_.clear();
        close(session);
        return false;
      }
      session.append(std::string_view(scratch_).substr(sent < 0 ? 0 : static_cast<std::size_t>(sent)));
    } else {
      session.append(scratch_);
    }
    scratch_.clear();
    if (scratch_.capacity() > 2 * kQueued) scratch_.shrink_to_fit();
  }
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
    const ssize_t sent = ::sendmsg(fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0 && errno != EAGAIN) {
      close(session);
      return false;
    }
    if (sent < 0) {
      await_room(session);
      return false;
    }
    session.take_off(static_cast<std::size_t>(sent));
  }
  return true;
}

void StoreServer::await_room(Session& session) {
  if (session.blocked) return;
  session.blocked = true;
  ++session.handlers;
  session.socket.async_wait(Socket::wait_write, [this, &session](boost::system::error_code error) {
    --session.handlers;
    on_room(session, bool(error));
    release_if_done(session);
  });
}

void StoreServer::on_room(Session& session, bool failed) {
  if (session.closed) return;
  session.blocked = false;
  if (failed) return close(session);
  if (!flush(session)) return;
  serve(session, {});
  read(session);
}

}  // namespace dlaunch::store
