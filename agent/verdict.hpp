// Which failure came first, and what the job ends with. Pure: the ends of workers as the coordinator
// heard of them go in, the report and the exit code come out.
//
// Candidates are workers that ended by themselves with a failure, and workers that dlaunch stopped but
// that had left evidence (a traceback, an error.json) before. A failure's time is the earliest of its end
// and its evidence. Times of one node are exact among themselves; across nodes a difference below the
// error of both is a tie: what triggered the stop is named, the others are shown as well.
#pragma once

#include <chrono>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "dlaunch/control/protocol.hpp"
#include "dlaunch/report.hpp"

namespace dlaunch {

struct WorkerEnd {
  control::WorkerExited exited;
  int node = 0;
  std::chrono::steady_clock::time_point failed_at;  // on the coordinator's clock
  std::chrono::microseconds error{};                // of that time: half the round trip
};

class Verdicts {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;

  // A later word about the same rank replaces the earlier, but the trigger stays what it was.
  void add(WorkerEnd end);
  void clear() { *this = {}; }

  // The rank that ended by itself with a failure before all others were heard of.
  std::optional<int> trigger() const { return trigger_; }
  bool failed() const { return trigger_.has_value(); }
  // True if the first failure is a program that could not be started: never restarted.
  bool could_not_start() const;
  // The signal that ended the first failure, if it is one of TERM, INT, HUP, QUIT: it may have been
  // meant for the whole job.
  int may_be_a_stop() const;

  // 0 if nothing failed. If the named worker was stopped by us, the code is that of the earliest that
  // ended by itself. 126 and 127 for programs that could not be started.
  int exit_code() const;
  JobReport report(const Layout& layout, int copies) const;
  // "rank 1 (local 1, pid 12) exited with code 9"
  std::string headline(const Layout& layout, int copies) const;

 private:
  const WorkerEnd* first() const;
  std::map<int, WorkerEnd> ends_;  // by rank
  std::optional<int> trigger_;
};

}  // namespace dlaunch
