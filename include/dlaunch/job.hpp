// One job as this node was asked to run it: every setting after flags, variables and defaults are
// settled, and nothing of where a value came from (that is settings.hpp). Plain data, passed by
// reference to everything below the command line.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "dlaunch/exit_status.hpp"

namespace dlaunch {

// Who hosts the key-value store of the workers.
enum class StoreHost {
  agent,   // node 0's dlaunch, at MASTER_ADDR:MASTER_PORT
  worker,  // the worker of rank 0, at a port that node 0 finds in each round
};

// What CUDA_VISIBLE_DEVICES a worker gets. `virtual_rank` is `single` with LOCAL_RANK=0.
enum class GpuBind { node, single, virtual_rank, none };

// A program and how it is started; made by command.hpp.
struct Program {
  enum class Kind {
    executable,     // argv[0] is run directly
    python_script,  // interpreter -u script args…
    python_module,  // interpreter -u -m module args…
  };
  Kind kind = Kind::executable;
  std::string typed;                   // as the user wrote it, for messages and the report
  std::vector<std::string> prefix;     // argv up to and with the script: injected arguments go behind it
  std::vector<std::string> arguments;  // the user's own, untouched but for ${local_rank}
  // Where arguments that dlaunch injects may go: false for wrappers (numactl, nsys, …), which get
  // them through the environment only.
  bool takes_injected = true;
  // "--local_rank" or "--local-rank" if the program is to get `<that>=N` first; empty if not.
  std::string local_rank_flag;
};

// N copies of one program that share a node's GPUs (--process_num).
struct Copies {
  int count = 0;                 // --process_num
  std::optional<int> only = {};  // --process_index: run this copy alone
  bool group = false;            // --process_group: the copies are ranks of one group
  bool keep_going = true;        // the others finish when one fails
};

// Which streams of which local rank: torchrun's grammar, "3" or "0:1,1:2".
struct StreamSpec {
  enum Streams : std::uint8_t { none = 0, out = 1, err = 2, both = 3 };
  Streams all = none;
  std::map<int, Streams> by_local_rank;  // if not empty, ranks that are not named get none

  Streams of(int local_rank) const {
    if (by_local_rank.empty()) return all;
    auto found = by_local_rank.find(local_rank);
    return found == by_local_rank.end() ? none : found->second;
  }
  bool any() const { return all != none || !by_local_rank.empty(); }
};

struct Job {
  // Size and place.
  int nnodes = 1;
  std::optional<int> node_rank = 0;  // none: assigned by the coordinator in order of arrival
  int nproc = 1;                     // workers on this node
  std::string run_id = "none";
  std::string role = "default";

  // Where the nodes meet.
  std::string master_addr = "127.0.0.1";  // as it was given: a name stays a name
  bool master_addr_given = false;
  std::uint16_t master_port = 0;  // 0: any free port (one node only)
  std::optional<bool> is_host;    // --rdzv_conf is_host=, with assigned ranks only
  std::chrono::seconds join_timeout{900};
  std::chrono::seconds heartbeat_timeout{30};

  // The workers' store.
  StoreHost store = StoreHost::agent;  // as node 0 sees it; Start tells the others
  std::uint16_t store_port = 0;        // --store_port: the worker's store, 0: found in each round

  // Life.
  int max_restarts = 0;
  std::chrono::seconds shutdown_timeout{30};
  std::set<int> stop_signals;  // --signals_to_handle: these stop the job on all nodes

  // What runs.
  Program program;
  std::optional<Copies> copies;
  GpuBind gpu_bind = GpuBind::node;
  std::vector<std::string> gpus;   // this node's list, strings kept; empty: none are to be seen
  std::optional<int> omp_threads;  // none: leave OMP_NUM_THREADS as it is

  // Output.
  std::string log_dir;  // empty: no files unless redirects or tee ask for them
  StreamSpec redirects;
  StreamSpec tee;
  std::set<int> local_ranks_filter;  // console shows these only; empty: all
  std::string log_file;              // --log_file: both streams of a worker to one file; %i and %r
};

// Is this a set of independent copies, with no group, no store and no port?
inline bool independent_copies(const Job& job) { return job.copies && !job.copies->group; }

}  // namespace dlaunch
