// Takes what one worker says in one round to where it belongs: console, files, last words. Both
// streams come through pipes whatever the mode, so that the last words are always known; a full
// console queue stops the reading, and so the worker, as a full terminal would.
//
// Main thread only. The worker's end and the end of its output are two events: a process that the
// worker left behind may hold the pipes open.
#pragma once

#include <array>
#include <boost/asio/any_io_executor.hpp>
#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "agent/console.hpp"
#include "dlaunch/log_plan.hpp"
#include "dlaunch/result.hpp"
#include "dlaunch/tail.hpp"

namespace dlaunch {

// The caller owns both ends; `read` does not block, both are close-on-exec.
struct OutputPipe {
  int read = -1;
  int write = -1;
};
Result<OutputPipe> open_output_pipe();

class WorkerOutput final : private Console::User {
 public:
  using Warn = std::function<void(const std::string&)>;

  // How long a stream stays open for others after the worker was reaped.
  static constexpr std::chrono::seconds kLinger{1};

  // Takes over the read ends, which must not block (pseudo-terminal masters will do as well). `console`
  // is borrowed and outlives this. `warn` gets one line for each file that cannot be written; what
  // would have gone there is then shown on the console. To be destroyed when finished(), at the
  // earliest from on_finished, or when the executor runs no more.
  WorkerOutput(boost::asio::any_io_executor executor, Console& console, const WorkerLogs& logs, int out,
               int err, Warn warn);
  ~WorkerOutput();

  // Opens the files, with their folders, and begins to read. `on_finished` is called once, from the
  // executor, as the last thing that happens here.
  void start(std::function<void()> on_finished);
  // The worker was reaped: what is not at its end after kLinger is given up once it is empty.
  void close_when_idle();
  // Nobody writes any more: reads what is in the pipes to its end, even if the console has no room, and
  // so at most as much as pipes hold.
  void read_rest();
  // Closes the read ends now; whoever still writes sees EPIPE.
  void close();

  bool finished() const { return finished_; }
  // The last words: of stderr, whatever the mode.
  const Tail& tail() const { return tail_; }

 private:
  class Reader;
  class LogFile;

  void on_room() override;
  void on_broken(Stream stream) override;
  void reader_ended();

  boost::asio::any_io_executor executor_;
  Console& console_;
  WorkerLogs logs_;
  Warn warn_;
  Tail tail_;
  std::array<std::unique_ptr<LogFile>, 2> files_;  // --log_file: the first, for both streams
  std::array<std::unique_ptr<Reader>, 2> readers_;
  std::function<void()> on_finished_;
  bool ending_ = false;
  bool finished_ = false;
};

}  // namespace dlaunch
