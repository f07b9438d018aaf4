// From what was typed and exported to one Job, with the origin of every value. Pure: flags,
// environment and a small view of the machine go in, settings or a message come out. Precedence:
// flag, DLAUNCH_*, PET_*, (engines, later), bare variables, default. Two origins of the tier that
// decides a setting and disagree stop the job with both shown.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "dlaunch/environment.hpp"
#include "dlaunch/job.hpp"
#include "dlaunch/result.hpp"

namespace dlaunch {

// The launcher's part of the command line after scanning: canonical flag name (underscores, no
// dashes in front) to the last value typed; switches map to "1". Made by launcher/flags.
struct Typed {
  std::map<std::string, std::string> flags;
  std::vector<std::string> program;    // the program and all that follows, untouched
  std::string invoked_as = "dlaunch";  // basename of argv[0]
};

// What the settings need to know of the machine, as functions so that tests need none of it.
struct Machine {
  std::function<bool(const std::string& path)> is_readable_file;
  std::function<bool(const std::string& path)> is_executable_file;
  std::function<bool(const std::string& path)> is_folder;
  // The first `limit` bytes; empty if it cannot be read.
  std::function<std::string(const std::string& path, std::size_t limit)> read_file;
  std::function<std::vector<std::string>()> gpus;  // device files found, as CUDA indices
  std::function<int()> cpus;                       // usable logical CPUs, cgroup quota counted
  std::function<int()> cores;                      // usable physical cores, cgroup quota counted
  std::string own_folder;                          // of the dlaunch binary, for bare words
};
Machine this_machine();

struct Origin {
  std::string value;   // as shown to a person
  std::string source;  // "--nproc_per_node", "PET_NNODES", "default", "derived from --rdzv_endpoint"
};

struct Settings {
  Job job;
  std::string log_level = "warning";
  enum class Ask { run, explain, help, version } ask = Ask::run;
  bool explain_json = false;                            // --explain=json
  std::vector<std::pair<std::string, Origin>> origins;  // in the order of --help
  std::vector<std::string> warnings;                    // one line each, said before the start
  std::vector<std::string> debug;                       // flags accepted and ignored
};

Result<Settings> settle(const Typed& typed, const Environment& environment, const Machine& machine);

}  // namespace dlaunch
