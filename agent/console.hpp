// The way out for everything a person sees: one thread that writes whole pieces to descriptors 1 and
// 2 in the order in which they were handed over. A console that blocks (Ctrl-S, `| less`) blocks only
// this thread; the main thread learns that the queue is full and stops reading the workers.
//
// The descriptors were inherited, so their flags belong to the user's shell as well and are never
// changed: writes are plain and blocking, unless somebody else made them non-blocking. All functions
// are for the main thread.
#pragma once

#include <array>
#include <boost/asio/any_io_executor.hpp>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace dlaunch {

enum class Stream { out, err };

class Console {
 public:
  // Bytes that may wait before full() holds; on_room comes when half of them are written.
  static constexpr std::size_t kRoom = 4 << 20;

  // Hears, on the main thread, what became of the console. Borrowed: to be removed before it ends.
  class User {
   public:
    virtual void on_room() = 0;
    virtual void on_broken(Stream stream) = 0;

   protected:
    ~User() = default;
  };

  // `main` runs the users' calls, none of them after the console's end only if it has then stopped
  // running. `warn` is told of output that is lost because a disk is full.
  Console(boost::asio::any_io_executor main, std::function<void(const std::string&)> warn, int out = 1,
          int err = 2);
  // Gives up what is still queued and would block; drain first.
  ~Console();
  Console(const Console&) = delete;
  Console& operator=(const Console&) = delete;

  void add(User& user) { users_.push_back(&user); }
  void remove(User& user);

  // Queues a piece; never blocks, and takes it even when full. `source` is whose it is, for
  // open_line(). Pieces for a broken stream are dropped.
  void write(Stream stream, std::string piece, const void* source = nullptr);
  // A line of dlaunch's own, to stderr, with its end: begins on a fresh line.
  void say(std::string line);

  // True if whoever fills the queue should wait for on_room.
  bool full();
  // EPIPE, EIO and the like: nobody will ever see this stream again.
  bool broken(Stream stream) const { return broken_[index(stream)]; }
  // Whose unfinished line is the last thing shown where this stream goes; null if a line just ended.
  const void* open_line(Stream stream) const;

  // Calls `then` on the main thread when all that was queued until now is written or dropped.
  void when_drained(std::function<void()> then);
  // Waits for that, blocking; without a limit for ever. When the limit has passed, what blocks is
  // given up: the rest of that stream is dropped, the other one still gets its pieces if it takes
  // them at once. False if anything was given up.
  bool drain(std::optional<std::chrono::milliseconds> limit);

 private:
  struct Writer;
  // What is at the end of a screen; both streams have the same if they go to the same file.
  struct Screen {
    char last_byte = '\n';
    const void* source = nullptr;
  };

  static std::size_t index(Stream stream) { return stream == Stream::out ? 0 : 1; }
  const Screen& screen(Stream stream) const { return screens_[one_screen_ ? 0 : index(stream)]; }
  void stream_broke(Stream stream);

  std::function<void(const std::string&)> warn_;
  std::vector<User*> users_;
  std::array<bool, 2> broken_{};
  std::array<Screen, 2> screens_;
  bool one_screen_ = false;
  std::unique_ptr<Writer> writer_;
};

}  // namespace dlaunch
