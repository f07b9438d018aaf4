// The flags as data: one table, from which the scanner, the settings, the help and the names of the
// variables are made. A flag is written with underscores here; people may type dashes as well.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace dlaunch {

struct Flag {
  enum class Takes {
    value,     // --nnodes 2, --nnodes=2
    nothing,   // a switch
    optional,  // --explain, --explain=json; the next word is never its value
  };
  enum class Group { size, meeting, program, copies, devices, life, output, asking };
  enum class Owner {
    torch,  // of torch.distributed.launch or torchrun: prefixes will do, PET_* is read
    ours,   // only the whole name will do
  };
  enum class Status {
    used,
    ignored,  // means nothing here: accepted, one debug line
    unbuilt,  // will mean something: accepted, one warning
  };

  std::string_view name;  // "nproc_per_node"
  char letter;            // 'r' for -r; 0: none
  Takes takes;
  Group group;
  Owner owner;
  Status status;
  bool pet;                        // is PET_<NAME> read?
  std::string_view value_name;     // "N", for the help
  std::string_view default_text;   // for the help
  std::string_view help;           // empty: not listed on a line of its own
  std::string_view excludes = {};  // a flag that cannot be typed together with it
};

std::span<const Flag> all_flags();
const Flag* find_flag(std::string_view name);

// "DLAUNCH_NNODES"; empty for --help and --version, which no variable can ask for.
std::string own_variable(const Flag& flag);
// "PET_NNODES"; empty where torchrun reads none.
std::string pet_variable(const Flag& flag);

std::string_view title(Flag::Group group);

}  // namespace dlaunch
