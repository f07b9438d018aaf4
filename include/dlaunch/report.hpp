// How a job that failed is told to people: one report, made on node 0 and the same on every node.
// Pure data and text; the first line names the true first failure, what can be known besides
// follows, indented.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "dlaunch/exit_status.hpp"

namespace dlaunch {

// A worker as people know it.
struct WorkerName {
  int rank = 0;  // global; for independent copies the index
  int node = 0;
  std::string host = {};
  int local = 0;
  int pid = 0;
  int copies = 0;  // above 0: one of that many independent copies
};

// "rank 5 (node 1 gpu-b, local 1, pid 4242)"; without the node on one node: "rank 1 (local 1, pid 4)";
// "copy 1 of 3 (pid 12)". A pid of 0 is left out.
std::string describe(const WorkerName& worker, int nnodes);

struct WorkerFailure {
  WorkerName worker = {};
  ExitStatus status = {};
  std::chrono::duration<double> after{};     // since it was started
  std::string exec_error = {};               // not empty: it could not be started, and why
  std::string message = {};                  // of error.json, may be empty
  std::vector<std::string> last_words = {};  // last lines of its stderr, raw bytes
  std::string log = {};                      // path of its stderr file, may be empty
};

// The worker and its end on one line: "rank 1 (local 1, pid 4) exited with code 3 after 12.4 s",
// "rank 0 (local 0) could not be started: …". For the report, and for what a restart says.
std::string describe(const WorkerFailure& failure, int nnodes);

struct JobReport {
  std::string reason = {};                  // used for the first line if there is no `first`
  std::optional<WorkerFailure> first = {};  // the first failure
  std::vector<WorkerFailure> tied = {};     // too close to tell apart, shown as well
  std::vector<WorkerFailure> others =
      {};  // ended by themselves with a failure, later (all copies under --keep_going)
  std::vector<std::pair<int, ExitStatus>> stopped = {};  // rank and end of workers that dlaunch stopped
  std::vector<std::string> notes = {};  // further lines: what is unknown, restarts used up, hints
  int nnodes = 1;
};

// The whole text, "dlaunch: job failed: …" first, every line with its end. Nothing that a worker said
// can steer a terminal: control characters and bytes that are not UTF-8 appear as \xNN. Bounded.
std::string render(const JobReport& report);

// "0-4, 6, 7"
std::string rank_list(std::vector<int> ranks);

}  // namespace dlaunch
