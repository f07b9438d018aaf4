// What one worker is started with: its argument vector and its whole environment, as pure functions
// of the job and the round. The contract is torchrun's (RANK, LOCAL_RANK, WORLD_SIZE, GROUP_RANK,
// ROLE_*, MASTER_*, TORCHELASTIC_*), plus NODE_RANK, PROCESS_INDEX/PROCESS_NUM and
// CUDA_VISIBLE_DEVICES. Stale variables of an outer job are overwritten or removed.
#pragma once

#include <string>
#include <vector>

#include "dlaunch/environment.hpp"
#include "dlaunch/job.hpp"
#include "dlaunch/layout.hpp"

namespace dlaunch {

// `error_file`: value of TORCHELASTIC_ERROR_FILE, may be empty.
Environment worker_environment(const Job& job, const Round& round, int local_rank,
                               const Environment& inherited, const std::string& error_file);

// argv with argv[0] as it is to be looked up; injected arguments and ${local_rank} in place.
std::vector<std::string> worker_arguments(const Job& job, const Round& round, int local_rank);

}  // namespace dlaunch
