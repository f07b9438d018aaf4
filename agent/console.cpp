#include "agent/console.hpp"

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <cerrno>
#include <cstring>
#include <future>
#include <thread>

namespace dlaunch {
namespace {

namespace asio = boost::asio;

// What a queued piece costs besides its bytes.
constexpr std::size_t kPieceCost = 128;
// How long a write that was interrupted may take to notice.
constexpr std::chrono::seconds kInterruptPatience{1};

int interrupt_signal() { return SIGRTMIN + 1; }

// Interrupts a blocked write, which a handler does only without SA_RESTART.
void install_interrupt() {
  struct sigaction action {};
  action.sa_handler = [](int) {};
  ::sigfillset(&action.sa_mask);
  ::sigaction(interrupt_signal(), &action, nullptr);
}

bool same_file(int a, int b) {
  struct stat x {
  }, y{};
  if (::fstat(a, &x) != 0 || ::fstat(b, &y) != 0) return false;
  return x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

// A write to a pipe without reader, or to a file over its limit, also sends its thread a signal, which
// is blocked there and must not stay pending.
void forget(int signal) {
  sigset_t set;
  ::sigemptyset(&set);
  ::sigaddset(&set, signal);
  timespec at_once{};
  while (::sigtimedwait(&set, nullptr, &at_once) < 0 && errno == EINTR) {
  }
}

bool may_pass(int error) { return error == ENOSPC || error == EDQUOT || error == EFBIG; }

}  // namespace

// All that the thread touches, so that it can be left behind if a dead disk never lets it go. The
// atomics are the only state that both threads use; all else goes by post.
struct Console::Writer {
  asio::any_io_executor main;
  Console* console;  // used on the main thread only
  std::array<int, 2> descriptors;

  asio::io_context io{1};
  asio::executor_work_guard<asio::io_context::executor_type> work{io.get_executor()};
  std::atomic<std::size_t> backlog{0};
  std::atomic<bool> room_wanted{false};
  std::atomic<bool> giving_up{false};
  std::atomic<bool> gave_up{false};

  std::array<bool, 2> dead{};  // the thread's own, as the next
  std::array<bool, 2> losing{};
  std::promise<void> ended = {};
  std::thread thread = {};

  void start();
  bool started() const { return thread.joinable(); }
  void run();
  void put(Stream stream, std::string_view piece);
  void failed(Stream stream, int error);
  bool must_give_up(int descriptor) const;
  void wrote(std::size_t cost);
  bool interrupt_until(std::future<void>& done);
};

// With the first piece only: workers that say nothing need no thread, which each fork would pay for.
void Console::Writer::start() {
  sigset_t all, before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  thread = std::thread([this] { run(); });
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

void Console::Writer::run() {
  sigset_t set;
  ::sigemptyset(&set);
  ::sigaddset(&set, interrupt_signal());
  ::pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
  io.run();
  ended.set_value();
}

// Asked after a write that did not take all: it was interrupted, though a terminal reports that even
// if it would not have blocked.
bool Console::Writer::must_give_up(int descriptor) const {
  if (!giving_up) return false;
  pollfd ready{descriptor, POLLOUT, 0};
  return ::poll(&ready, 1, 0) <= 0;
}

void Console::Writer::put(Stream stream, std::string_view piece) {
  std::size_t which = index(stream);
  while (!piece.empty() && !dead[which]) {
    ssize_t n = ::write(descriptors[which], piece.data(), piece.size());
    if (n < 0 && errno != EINTR && errno != EAGAIN) return failed(stream, errno);
    if (n < 0 && errno == EAGAIN && !giving_up) {
      pollfd ready{descriptors[which], POLLOUT, 0};
      ::poll(&ready, 1, -1);
    }
    if (n > 0) {
      piece.remove_prefix(static_cast<std::size_t>(n));
      losing[which] = false;
    }
    if (!piece.empty() && must_give_up(descriptors[which])) dead[which] = gave_up = true;
  }
}

void Console::Writer::failed(Stream stream, int error) {
  std::size_t which = index(stream);
  if (error == EPIPE) forget(SIGPIPE);
  if (error == EFBIG) forget(SIGXFSZ);
  if (!may_pass(error)) {
    dead[which] = true;
    asio::post(main, [this, stream] { console->stream_broke(stream); });
  } else if (!losing[which]) {
    losing[which] = true;
    asio::post(main, [this, stream, error] {
      console->warn_(std::string(stream == Stream::out ? "stdout" : "stderr") + ": " + std::strerror(error) +
                     "; what the workers say there is lost until there is room");
    });
  }
}

void Console::Writer::wrote(std::size_t cost) {
  std::size_t left = backlog.fetch_sub(cost) - cost;
  if (left <= kRoom / 2 && room_wanted.exchange(false)) {
    asio::post(main, [this] {
      // A user may leave while the others are told.
      for (User* user : std::vector<User*>(console->users_)) {
        if (std::count(console->users_.begin(), console->users_.end(), user)) user->on_room();
      }
    });
  }
}

// The signal may come just before the write that then blocks, so it is sent until it has helped.
bool Console::Writer::interrupt_until(std::future<void>& done) {
  giving_up = true;
  auto limit = std::chrono::steady_clock::now() + kInterruptPatience;
  while (done.wait_for(std::chrono::milliseconds(1)) != std::future_status::ready) {
    if (std::chrono::steady_clock::now() > limit) return false;
    ::pthread_kill(thread.native_handle(), interrupt_signal());
  }
  return true;
}

Console::Console(asio::any_io_executor main, std::function<void(const std::string&)> warn, int out, int err)
    : warn_(std::move(warn)),
      one_screen_(same_file(out, err)),
      writer_(new Writer{.main = std::move(main), .console = this, .descriptors = {out, err}}) {
  install_interrupt();
}

Console::~Console() {
  if (!writer_->started()) return;
  std::future<void> ended = writer_->ended.get_future();
  writer_->work.reset();
  if (writer_->interrupt_until(ended)) {
    writer_->thread.join();
  } else {
    writer_.release();  // held by the kernel in a write that no signal ends; leaves with the process
  }
}

void Console::remove(User& user) { std::erase(users_, &user); }

void Console::write(Stream stream, std::string piece, const void* source) {
  if (piece.empty() || broken(stream)) return;
  screens_[one_screen_ ? 0 : index(stream)] = {piece.back(), source};
  if (!writer_->started()) writer_->start();
  std::size_t cost = piece.size() + kPieceCost;
  writer_->backlog += cost;
  asio::post(writer_->io, [writer = writer_.get(), stream, piece = std::move(piece), cost] {
    writer->put(stream, piece);
    writer->wrote(cost);
  });
}

void Console::say(std::string line) {
  if (screen(Stream::err).last_byte != '\n') line.insert(0, 1, '\n');
  write(Stream::err, std::move(line));
}

bool Console::full() {
  if (writer_->backlog < kRoom) return false;
  // Asked for first and looked at again, or the last write could come in between.
  writer_->room_wanted = true;
  return writer_->backlog >= kRoom;
}

const void* Console::open_line(Stream stream) const {
  const Screen& end = screen(stream);
  return end.last_byte == '\n' || end.last_byte == '\r' ? nullptr : end.source;
}

void Console::stream_broke(Stream stream) {
  broken_[index(stream)] = true;
  for (User* user : std::vector<User*>(users_)) {
    if (std::count(users_.begin(), users_.end(), user)) user->on_broken(stream);
  }
}

void Console::when_drained(std::function<void()> then) {
  if (!writer_->started()) return asio::post(writer_->main, std::move(then));
  asio::post(writer_->io, [writer = writer_.get(), then = std::move(then)]() mutable {
    asio::post(writer->main, std::move(then));
  });
}

bool Console::drain(std::optional<std::chrono::milliseconds> limit) {
  if (!writer_->started()) return true;
  std::promise<void> reached;
  std::future<void> drained = reached.get_future();
  asio::post(writer_->io, [reached = std::move(reached)]() mutable { reached.set_value(); });
  if (!limit) {
    drained.wait();
    return true;
  }
  if (drained.wait_for(*limit) == std::future_status::ready) return true;
  writer_->gave_up = false;
  bool let_go = writer_->interrupt_until(drained);
  writer_->giving_up = false;
  return let_go && !writer_->gave_up;
}

}  // namespace dlaunch
