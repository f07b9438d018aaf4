#include "dlaunch/flag.hpp"

#include <algorithm>
#include <cctype>

namespace dlaunch {

namespace {

using Takes = Flag::Takes;
using Group = Flag::Group;
constexpr auto torch = Flag::Owner::torch;
constexpr auto ours = Flag::Owner::ours;
constexpr auto used = Flag::Status::used;
constexpr auto ignored = Flag::Status::ignored;
constexpr auto unbuilt = Flag::Status::unbuilt;

constexpr Flag kFlags[] = {
    {"nnodes", 0, Takes::value, Group::size, torch, used, true, "N", "1", "nodes in the job"},
    {"node_rank", 0, Takes::value, Group::size, torch, used, true, "K", "0", "this node's number, from 0"},
    {"nproc_per_node", 0, Takes::value, Group::size, torch, used, true, "N", "1",
     "workers on this node; or gpu, cpu, auto"},
    {"role", 0, Takes::value, Group::size, torch, used, true, "NAME", "default",
     "role of this node's workers"},
    {"standalone", 0, Takes::nothing, Group::size, torch, used, true, "", "off",
     "one node, loopback, a free port"},

    {"master_addr", 0, Takes::value, Group::meeting, torch, used, true, "HOST", "127.0.0.1",
     "address of node 0"},
    {"master_port", 0, Takes::value, Group::meeting, torch, used, true, "PORT",
     "free; 29500 for several nodes", "the job's one port"},
    {"rdzv_backend", 0, Takes::value, Group::meeting, torch, used, true, "NAME", "static",
     "static; c10d: node ranks by arrival"},
    {"rdzv_endpoint", 0, Takes::value, Group::meeting, torch, used, true, "HOST:PORT", "none",
     "where nodes meet, for either backend"},
    {"rdzv_id", 0, Takes::value, Group::meeting, torch, used, true, "ID", "none", "run id"},
    {"rdzv_conf", 0, Takes::value, Group::meeting, torch, used, true, "K=V,...", "none",
     "timeout, join_timeout, is_host"},
    {"join_timeout", 0, Takes::value, Group::meeting, ours, used, false, "SECONDS", "900",
     "how long to wait for all nodes"},
    {"heartbeat_timeout", 0, Takes::value, Group::meeting, ours, used, false, "SECONDS", "30",
     "after so long a silent node is lost"},
    {"store", 0, Takes::value, Group::meeting, ours, used, false, "WHO", "auto",
     "workers' store: auto, agent, worker"},
    {"store_port", 0, Takes::value, Group::meeting, ours, used, false, "PORT", "free",
     "port of --store worker"},
    {"store_access", 0, Takes::value, Group::meeting, ours, used, false, "WHO", "any", ""},
    {"local_addr", 0, Takes::value, Group::meeting, torch, ignored, true, "HOST", "none", ""},

    {"module", 'm', Takes::nothing, Group::program, torch, used, true, "", "off",
     "the program is a Python module", "no_python"},
    {"no_python", 0, Takes::nothing, Group::program, torch, used, true, "", "off", "run the program itself"},
    {"run_path", 0, Takes::nothing, Group::program, torch, used, true, "", "off",
     "run it as a Python script in any case"},
    {"use_env", 0, Takes::nothing, Group::program, torch, used, false, "", "off", "never pass --local_rank"},
    {"pass_local_rank", 0, Takes::value, Group::program, ours, used, false, "HOW", "as the script",
     "underscore, dash, none"},

    {"process_num", 0, Takes::value, Group::copies, ours, used, false, "N", "none",
     "run N independent copies that share GPUs"},
    {"process_index", 0, Takes::value, Group::copies, ours, used, false, "I", "all", "run copy I of N alone"},
    {"process_group", 0, Takes::nothing, Group::copies, ours, used, false, "", "off",
     "the copies are ranks of one group"},
    {"keep_going", 0, Takes::nothing, Group::copies, ours, used, false, "", "on",
     "others finish when a copy fails"},
    {"stop_all", 0, Takes::nothing, Group::copies, ours, used, false, "", "off", "others are stopped then",
     "keep_going"},

    {"gpu_bind", 0, Takes::value, Group::devices, ours, used, false, "HOW", "auto",
     "node, single, virtual, none"},
    {"virtual_local_rank", 0, Takes::nothing, Group::devices, torch, used, true, "", "off",
     "the same as --gpu_bind virtual"},
    {"omp_threads", 0, Takes::value, Group::devices, ours, used, false, "N", "cores/workers",
     "OMP_NUM_THREADS"},
    {"numa_binding", 0, Takes::value, Group::devices, torch, unbuilt, false, "HOW", "none", ""},

    {"max_restarts", 0, Takes::value, Group::life, torch, used, true, "N", "0", "restarts of the whole job"},
    {"shutdown_timeout", 0, Takes::value, Group::life, torch, used, true, "SECONDS", "30",
     "from the stop signal to SIGKILL"},
    {"signals_to_handle", 0, Takes::value, Group::life, torch, used, true, "LIST", "TERM,INT,HUP,QUIT",
     "signals that stop the job"},
    {"monitor_interval", 0, Takes::value, Group::life, torch, ignored, true, "SECONDS", "none", ""},
    {"start_method", 0, Takes::value, Group::life, torch, ignored, true, "NAME", "none", ""},
    {"event_log_handler", 0, Takes::value, Group::life, torch, ignored, true, "NAME", "none", ""},

    {"log_dir", 0, Takes::value, Group::output, torch, used, true, "FOLDER", "none", "where log files go"},
    {"redirects", 'r', Takes::value, Group::output, torch, used, true, "SPEC", "0",
     "to files: 1 out, 2 err, 3 both; or 0:3,1:2"},
    {"tee", 't', Takes::value, Group::output, torch, used, true, "SPEC", "0", "to files and the console",
     "log_file"},
    {"local_ranks_filter", 0, Takes::value, Group::output, torch, used, true, "0,1,...", "all",
     "the console shows these only"},
    {"log_file", 0, Takes::value, Group::output, ours, used, false, "FILE", "none",
     "a worker's output; %i local, %r rank", "redirects"},
    {"log_level", 0, Takes::value, Group::output, ours, used, false, "NAME", "warning",
     "debug, info, warning, error; or LOGLEVEL"},
    {"logdir", 0, Takes::value, Group::output, torch, used, false, "FOLDER", "none", ""},
    {"logs_specs", 0, Takes::value, Group::output, torch, ignored, false, "NAME", "none", ""},
    {"log_line_prefix_template", 0, Takes::value, Group::output, torch, unbuilt, true, "TEXT", "none", ""},
    {"duplicate_stdout_filters", 0, Takes::value, Group::output, torch, unbuilt, true, "LIST", "none", ""},
    {"duplicate_stderr_filters", 0, Takes::value, Group::output, torch, unbuilt, true, "LIST", "none", ""},

    {"explain", 0, Takes::optional, Group::asking, ours, used, false, "[=json]", "off",
     "print every value and its origin; run nothing"},
    {"dry_run", 0, Takes::nothing, Group::asking, ours, used, false, "", "off", "the same as --explain"},
    {"version", 0, Takes::nothing, Group::asking, ours, used, false, "", "off", "print the version"},
    {"help", 'h', Takes::nothing, Group::asking, torch, used, false, "", "off", "print this"},
    {"print_completion", 0, Takes::value, Group::asking, torch, unbuilt, false, "SHELL", "none", ""},
};

std::string upper(std::string_view name) {
  std::string text(name);
  for (char& c : text) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return text;
}

}  // namespace

std::span<const Flag> all_flags() { return kFlags; }

const Flag* find_flag(std::string_view name) {
  auto found =
      std::find_if(std::begin(kFlags), std::end(kFlags), [&](const Flag& f) { return f.name == name; });
  return found == std::end(kFlags) ? nullptr : found;
}

std::string own_variable(const Flag& flag) {
  if (flag.name == "help" || flag.name == "version") return "";
  return "DLAUNCH_" + upper(flag.name);
}

std::string pet_variable(const Flag& flag) { return flag.pet ? "PET_" + upper(flag.name) : ""; }

std::string_view title(Flag::Group group) {
  switch (group) {
    case Group::size:
      return "Size and place";
    case Group::meeting:
      return "Where the nodes meet";
    case Group::program:
      return "The program";
    case Group::copies:
      return "Copies that share GPUs";
    case Group::devices:
      return "GPUs and cores";
    case Group::life:
      return "Failure and end";
    case Group::output:
      return "Output";
    case Group::asking:
      return "Questions";
  }
  return "";
}

}  // namespace dlaunch
