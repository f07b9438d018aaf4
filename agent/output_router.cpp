#include "agent/output_router.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <optional>
#include <utility>

#include "dlaunch/line_assembler.hpp"
#include "dlaunch/line_label.hpp"

namespace dlaunch {
namespace {

namespace asio = boost::asio;
using boost::system::error_code;
using std::string_view;

constexpr std::size_t kReadSize = 64 * 1024;
// More than any pipe holds: whoever writes on is no descendant of ours.
constexpr std::size_t kMaxRest = 4 << 20;
// Reads in a row before others have their turn.
constexpr int kReadsPerTurn = 4;
constexpr int kPipeSize = 256 * 1024;

}  // namespace

Result<OutputPipe> open_output_pipe() {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return last_error("pipe2");
  // The read end alone: the worker must find an ordinary pipe.
  ::fcntl(ends[0], F_SETFL, O_NONBLOCK);
  // More than a user's share of pipe memory is refused; then it stays small.
  ::fcntl(ends[0], F_SETPIPE_SZ, kPipeSize);
  return OutputPipe{ends[0], ends[1]};
}

class WorkerOutput::LogFile {
 public:
  LogFile(std::string path, bool append, bool shared, const Warn& warn)
      : path_(std::move(path)), shared_(shared), warn_(warn) {
    std::error_code ignored;  // what is wrong with the folder, open says too
    if (auto folder = std::filesystem::path(path_).parent_path(); !folder.empty()) {
      std::filesystem::create_directories(folder, ignored);
    }
    // O_NONBLOCK is for a FIFO that nobody reads; regular files do not know it.
    int flags = O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOCTTY | O_NONBLOCK | (append ? 0 : O_TRUNC);
    descriptor_ = ::open(path_.c_str(), flags, 0666);
    if (descriptor_ < 0) lose(errno);
  }
  ~LogFile() {
    if (descriptor_ >= 0) ::close(descriptor_);
  }
  LogFile(const LogFile&) = delete;

  bool usable() const { return descriptor_ >= 0; }
  // Both streams of the worker come here, so lines are to be kept whole.
  bool shared() const { return shared_; }

  // Gives back what could not be written; then the file is no longer usable.
  string_view write(string_view bytes) {
    while (!bytes.empty() && usable()) {
      ssize_t n = ::write(descriptor_, bytes.data(), bytes.size());
      if (n >= 0) {
        bytes.remove_prefix(static_cast<std::size_t>(n));
      } else if (errno != EINTR) {
        lose(errno);
      }
    }
    return bytes;
  }

 private:
  void lose(int error) {
    warn_("log file '" + path_ + "': " + std::strerror(error) + "; this output is shown on the console only");
    if (descriptor_ >= 0) ::close(descriptor_);
    descriptor_ = -1;
  }

  std::string path_;
  bool shared_;
  const Warn& warn_;
  int descriptor_ = -1;
};

// One stream of the worker. It has ended when its descriptor is closed and none of its handlers is
// under way, so that its owner can then be destroyed.
class WorkerOutput::Reader {
 public:
  Reader(WorkerOutput& owner, Stream stream, int descriptor, bool to_console, const std::string& label)
      : owner_(owner),
        console_(owner.console_),
        stream_(stream),
        descriptor_(owner.executor_),
        partial_due_(owner.executor_),
        linger_(owner.executor_),
        to_console_(to_console) {
    if (!label.empty()) label_.emplace(label);
    error_code error;
    descriptor_.assign(descriptor, error);
    if (error) ::close(descriptor);
  }

  void start(LogFile* file) {
    file_ = file;
    if (homeless()) close();
    wait();
  }

  void on_room() {
    if (std::exchange(waits_for_room_, false)) read();
  }

  void on_broken() {
    if (homeless()) close();
  }

  void linger() {
    if (closed()) return;
    linger_.expires_after(kLinger);
    ++under_way_;
    linger_.async_wait([this](error_code error) {
      if (!error && !closed()) {
        give_up_when_empty_ = true;
        if (!waits_for_room_) read();
      }
      handled();
    });
  }

  void read_rest() {
    if (closed() || rest_ > 0) return;
    rest_ = kMaxRest;
    give_up_when_empty_ = true;
    waits_for_room_ = false;
    read_again();
  }

  // What is unfinished is shown; what is still in the pipe is not.
  void close() {
    if (closed()) return;
    deliver(assembler_.flush());
    error_code ignored;
    descriptor_.close(ignored);
    partial_due_.cancel();
    linger_.cancel();
    owner_.reader_ended();
  }

  bool ended() const { return closed() && under_way_ == 0; }

 private:
  bool closed() const { return !descriptor_.is_open(); }
  bool has_file() const { return file_ && file_->usable(); }
  bool belongs_on_console() const { return to_console_ || (file_ && !file_->usable()); }
  bool on_console() const { return belongs_on_console() && !console_.broken(stream_); }
  bool homeless() const { return belongs_on_console() && console_.broken(stream_) && !has_file(); }

  void handled() {
    --under_way_;
    owner_.reader_ended();
  }

  void wait() {
    if (closed() || waits_) return;
    waits_ = true;
    ++under_way_;
    descriptor_.async_wait(asio::posix::stream_descriptor::wait_read, [this](error_code error) {
      waits_ = false;
      if (!error && !closed()) read();
      handled();
    });
  }

  // For a stream that is to be found empty: nothing would wake a wait for more.
  void read_again() {
    ++under_way_;
    asio::post(owner_.executor_, [this] {
      if (!closed()) read();
      handled();
    });
  }

  void read() {
    char bytes[kReadSize];
    for (int i = 0; i < kReadsPerTurn; ++i) {
      if (on_console() && console_.full() && rest_ == 0) {
        waits_for_room_ = true;
        return;
      }
      ssize_t n = ::read(descriptor_.native_handle(), bytes, sizeof bytes);
      if (n > 0) {
        take({bytes, static_cast<std::size_t>(n)});
        if (closed()) return;
        if (rest_ > 0 && (rest_ -= std::min<std::size_t>(rest_, static_cast<std::size_t>(n))) == 0)
          return close();
        if (static_cast<std::size_t>(n) < sizeof bytes) break;
      } else if (n < 0 && errno == EAGAIN && !give_up_when_empty_) {
        break;
      } else if (n == 0 || errno != EINTR) {
        return close();  // the end; a pseudo-terminal says EIO for it
      }
    }
    if (give_up_when_empty_) {
      read_again();
    } else {
      wait();
    }
  }

  void take(string_view bytes) {
    auto now = Clock::now();
    if (stream_ == Stream::err) owner_.tail_.feed(bytes, now);
    if (has_file() && !file_->shared()) {
      string_view rest = file_->write(bytes);
      if (!to_console_) bytes = rest;
    }
    if (homeless()) return close();
    if (!on_console() && !(has_file() && file_->shared())) return;
    deliver(assembler_.feed(bytes, now));
    watch_partial();
  }

  // A piece of whole lines, or one that was waited for long enough.
  void deliver(std::string piece) {
    if (has_file() && file_->shared()) {
      string_view rest = file_->write(piece);
      if (!to_console_) piece.erase(0, piece.size() - rest.size());
    }
    if (piece.empty() || !on_console()) return;
    if (label_) {
      const void* open = console_.open_line(stream_);
      if (open != this) label_->begin_line();
      piece = (open && open != this ? "\n" : "") + label_->apply(piece);
    }
    console_.write(stream_, std::move(piece), this);
  }

  // The timer is not moved with each byte: it looks again when it fires.
  void watch_partial() {
    auto due = assembler_.due();
    if (!due || watches_ || closed()) return;
    watches_ = true;
    partial_due_.expires_at(*due);
    ++under_way_;
    partial_due_.async_wait([this](error_code error) {
      watches_ = false;
      if (!error && !closed()) {
        if (auto still = assembler_.due(); still && *still <= Clock::now()) deliver(assembler_.flush());
        watch_partial();
      }
      handled();
    });
  }

  WorkerOutput& owner_;
  Console& console_;
  Stream stream_;
  asio::posix::stream_descriptor descriptor_;
  asio::steady_timer partial_due_;
  asio::steady_timer linger_;
  bool to_console_;
  LogFile* file_ = nullptr;
  LineAssembler assembler_;
  std::optional<LineLabel> label_;
  int under_way_ = 0;
  bool waits_ = false;
  bool watches_ = false;
  bool waits_for_room_ = false;
  bool give_up_when_empty_ = false;
  std::size_t rest_ = 0;  // above 0: read_rest, and how much it may still be
};

WorkerOutput::WorkerOutput(asio::any_io_executor executor, Console& console, const WorkerLogs& logs, int out,
                           int err, Warn warn)
    : executor_(std::move(executor)), console_(console), logs_(logs), warn_(std::move(warn)) {
  readers_[0] = std::make_unique<Reader>(*this, Stream::out, out, logs.console_out, logs.label_out);
  readers_[1] = std::make_unique<Reader>(*this, Stream::err, err, logs.console_err, logs.label_err);
}

WorkerOutput::~WorkerOutput() { console_.remove(*this); }

void WorkerOutput::start(std::function<void()> on_finished) {
  on_finished_ = std::move(on_finished);
  bool shared = !logs_.out_file.empty() && logs_.out_file == logs_.err_file;
  if (!logs_.out_file.empty())
    files_[0] = std::make_unique<LogFile>(logs_.out_file, logs_.append, shared, warn_);
  if (!logs_.err_file.empty() && !shared)
    files_[1] = std::make_unique<LogFile>(logs_.err_file, logs_.append, false, warn_);
  console_.add(*this);
  readers_[0]->start(files_[0].get());
  readers_[1]->start(files_[shared ? 0 : 1].get());
  reader_ended();
}

void WorkerOutput::close_when_idle() {
  for (auto& reader : readers_) reader->linger();
}

void WorkerOutput::read_rest() {
  for (auto& reader : readers_) reader->read_rest();
}

void WorkerOutput::close() {
  for (auto& reader : readers_) reader->close();
}

void WorkerOutput::on_room() {
  for (auto& reader : readers_) reader->on_room();
}

void WorkerOutput::on_broken(Stream stream) { readers_[stream == Stream::out ? 0 : 1]->on_broken(); }

// Told by a handler of its own, so that whoever hears of it may destroy this.
void WorkerOutput::reader_ended() {
  if (ending_ || !readers_[0]->ended() || !readers_[1]->ended()) return;
  ending_ = true;
  asio::post(executor_, [this] {
    finished_ = true;
    if (auto tell = std::move(on_finished_)) tell();
  });
}

}  // namespace dlaunch
