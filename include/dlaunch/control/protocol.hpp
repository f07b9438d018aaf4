// The control channel between an agent and the coordinator, decoded without I/O.
//
// Same port as the workers' store, told apart by its first bytes:
//
//   connection := "DLN1" frame*            (the magic is sent by the agent only)
//   frame      := u32 little endian length, at most 1 MiB; then that many bytes of UTF-8 JSON
//   JSON       := {"type": <name below>, …members…}
//   ExitStatus := {"code": 0 .. 255, "signal": 0 .. 64, "core": bool}
//   Layout     := [{"nproc": n, "role": text, "hosts": [text…]}…]  (runs of like nodes, in rank order)
//   StoreHost  := "agent" | "worker"
//
// Bytes that are not UTF-8 (last words) are replaced, never refused. Unknown members are ignored,
// missing ones take the defaults below; an unknown type, a wrong type or a number out of its range
// is a broken frame. Lists of texts have at most 4096 entries.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "dlaunch/exit_status.hpp"
#include "dlaunch/job.hpp"
#include "dlaunch/layout.hpp"
#include "dlaunch/result.hpp"

namespace dlaunch::control {

inline constexpr std::string_view kMagic = "DLN1";
inline constexpr std::size_t kMaxFrame = 1 << 20;
inline constexpr int kProtocol = 1;

// What a peer may claim at most.
inline constexpr int kMaxNodes = 65'536;
inline constexpr int kMaxProcesses = 65'536;  // on one node
inline constexpr int kMaxWorkers = 1 << 24;   // in the job

// --- agent to coordinator ---
struct Hello {
  int protocol = kProtocol;
  std::string version = {};
  std::string session = {};  // one per agent process, random
  std::string run_id = {};
  int node_rank = -1;  // -1: assign one
  int nnodes = 1;
  int nproc = 1;
  std::string role = {};
  std::string host = {};
  std::vector<std::string> addresses = {};  // all local ones
  int pid = 0;
};
struct Spawned {  // every worker of the round has been started
  int round = 0;
};
// Sent at once when a worker fails or ends after a Stop, and again, with its last words and what they are
// evidence of, when its output has been read to its end; the later one replaces the earlier.
struct WorkerExited {
  int round = 0;
  int rank = 0;
  int local = 0;
  int pid = 0;
  ExitStatus status = {};
  std::int64_t age_us = 0;      // from the failure (its exit, or earlier evidence) to this message
  bool evidence = false;        // there was evidence before it was stopped
  bool stopped = false;         // it ended after dlaunch had told it to
  std::int64_t lived_us = 0;    // from its start to its end
  std::string exec_error = {};  // not empty: it could not be started
  std::string message = {};     // of error.json
  std::vector<std::string> last_words = {};
  std::string log = {};
};
struct Stopped {  // all workers of the round are gone, or stuck ones named
  int round = 0;
  std::vector<std::string> stuck = {};  // "rank 3 (pid 77, state D)"
};
struct Done {  // all workers of the round ended with 0 and nothing of them is left
  int round = 0;
};
struct Signalled {  // this node's dlaunch was told to stop by a signal
  int signal = 0;
};
struct Pong {
  std::uint64_t id = 0;
};
struct Bye {
  std::string reason = {};  // empty after Finish
};

// --- coordinator to agent ---
struct Welcome {
  int node_rank = 0;
  std::int64_t heartbeat_ms = 30000;  // node 0's --heartbeat_timeout holds for all
};
struct Refused {
  std::string reason = {};
  bool retry = false;  // a job that is just ending: try again until --join_timeout
};
struct Waiting {  // sent now and then while nodes are missing
  std::vector<int> missing = {};
  std::vector<std::string> here = {};  // "0 gpu-a"
  std::int64_t left_ms = 0;
};
struct Start {
  int round = 0;
  Layout layout = {};
  std::uint16_t master_port = 0;
  StoreHost store = StoreHost::agent;
  std::string notice;  // said on every node before a restart; empty in round 0
};
struct Stop {
  int round = 0;
  int signal = 15;  // what the workers get first
  std::int64_t grace_ms = 30000;
  std::string reason = {};
};
struct Finish {
  int exit_code = 0;
  int signal = 0;           // above 0: dlaunch was stopped by this signal
  std::string report = {};  // whole lines; empty after success
};
struct Ping {
  std::uint64_t id = 0;
};

using Message = std::variant<Hello, Spawned, WorkerExited, Stopped, Done, Signalled, Pong, Bye, Welcome,
                             Refused, Waiting, Start, Stop, Finish, Ping>;

// One whole frame, length included. What is too long for a frame is cut: the older of the last
// words, the end of a report, host names of a layout; never a number.
std::string encode(const Message& message);

// Takes one frame off the front of `in`. Empty: more bytes please. Error: no byte can mend it.
Result<std::optional<Message>> take_message(std::string_view& in);

}  // namespace dlaunch::control
