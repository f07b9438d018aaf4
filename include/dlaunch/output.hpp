// What becomes of a worker's output: pure pieces without descriptors. LineAssembler keeps the lines
// of one stream whole, Tail remembers its last lines and what they are evidence of, LogPlan says
// which files a worker's streams go to (torchrun's layout).
#pragma once

#include <chrono>
#include <deque>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "dlaunch/job.hpp"
#include "dlaunch/layout.hpp"

namespace dlaunch {

using Clock = std::chrono::steady_clock;

// Bytes in, pieces that may be written without tearing a line out. Lines up to 64 KiB stay whole; a
// carriage return is a legal end; a piece without an end is released 100 ms after its last byte.
class LineAssembler {
 public:
  static constexpr std::size_t kMaxLine = 64 * 1024;
  static constexpr std::chrono::milliseconds kPatience{100};

  // Takes bytes, returns what can be written now (maybe nothing): up to the last line end.
  std::string feed(std::string_view bytes, Clock::time_point now);
  // When the unfinished piece is due, if there is one.
  std::optional<Clock::time_point> due() const;
  // The unfinished piece if it is due, or at the end of the stream.
  std::string flush();

 private:
  std::string pending_;
  Clock::time_point last_byte_{};
};

// The last lines of a worker's stderr, bounded, whatever the mode.
class Tail {
 public:
  static constexpr std::size_t kMaxLines = 20;
  static constexpr std::size_t kMaxLineBytes = 1024;

  void feed(std::string_view bytes, Clock::time_point now);
  // Oldest first, an unfinished last line included, bytes as they came (long lines are cut).
  std::vector<std::string> lines() const;
  // When a Traceback, "terminate called" or fatal-signal block began that is the last thing on the
  // stream; none if something else was printed after it. A traceback's block is its head, indented
  // lines, and the final "Name: text" line.
  std::optional<Clock::time_point> evidence() const;

 private:
  struct Line {
    std::string text;
    Clock::time_point at;
  };
  std::deque<Line> lines_;
  std::string partial_;
  Clock::time_point partial_since_{};
};

// Where one worker's streams go in one round.
struct WorkerLogs {
  std::string out_file;     // empty: none
  std::string err_file;     // empty: none
  bool console_out = true;
  bool console_err = true;
  bool append = false;      // --log_file in rounds after the first
  bool tagged = false;      // torchrun's tee prefix "[default0]:" on console lines
  std::string error_file;   // TORCHELASTIC_ERROR_FILE
};

// `base` is <log_dir or private temporary folder>/<run id>_<random>, made once per agent by the
// caller; files are <base>/attempt_<round>/<local rank>/{stdout.log,stderr.log,error.json}.
WorkerLogs plan_logs(const Job& job, const Round& round, int local_rank, const std::string& base);

// True if the job writes log files of its own layout, so that --log_dir's folder must exist.
bool wants_log_folder(const Job& job);

// The message and time of an error.json as torch's @record writes it ("message" a string or an
// object with "message"), any bytes survived; empty if there is none.
std::string error_message(const std::string& json_text);

}  // namespace dlaunch
