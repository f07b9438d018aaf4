// Where the ranks of a group find each other: a few keys and values, in a store that the launcher or rank 0
// serves, or in a file. Only small things pass here (addresses, NCCL's id, the last words of a rank).
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "dlaunch/environment.hpp"
#include "dlaunch/result.hpp"

namespace trainer {

using dlaunch::Errc;
using dlaunch::Error;
using dlaunch::Result;
using Milliseconds = std::chrono::milliseconds;

// One thread at a time.
class Rendezvous {
 public:
  virtual ~Rendezvous() = default;
  virtual Result<> set(const std::string& key, const std::string& value) = 0;
  // Waits for the key; Errc::timed_out names it.
  virtual Result<std::string> get(const std::string& key, Milliseconds limit) = 0;
  virtual Result<bool> has(const std::string& key) = 0;  // now
  // The rank whose process keeps the keys, if one does: where nothing answers, that rank is silent or gone.
  virtual std::optional<int> served_by() const { return std::nullopt; }
};

// What the command line and the environment say about this process's place.
struct InitOptions {
  std::string url = "env://";  // tcp://host:port, file:///path
  std::optional<int> rank;
  std::optional<int> world_size;
  std::optional<int> local_rank;
  std::optional<int> process_index;  // an independent copy: no group
  std::optional<int> process_num;
  Milliseconds timeout = std::chrono::seconds(300);  // for all ranks to come
};

struct Place {
  int rank = 0;
  int world_size = 1;
  int local_rank = 0;
  int process_index = 0;
  int process_num = 1;
  int round = 0;       // TORCHELASTIC_RESTART_COUNT
  std::string run_id;  // TORCHELASTIC_RUN_ID
};

struct Membership {
  std::unique_ptr<Rendezvous> rendezvous;  // null with a world of one
  std::string address;                     // of this process, by which the other ranks reach it: a literal
};

// Pure: the place alone, with every contradiction and every value that is no number named.
Result<Place> place_of(const InitOptions& options, const dlaunch::Environment& environment);

// Takes the place, as place_of() has it, and meets the others: when it returns, all `world_size` ranks have
// come. Refuses a second process with the same rank, and another job on the same port or file. Whom it waits
// for goes to `tell`, once, when that takes more than some seconds.
using Tell = std::function<void(const std::string&)>;
Result<Membership> join(const InitOptions& options, const Place& place,
                        const dlaunch::Environment& environment, const Tell& tell);

}  // namespace trainer
