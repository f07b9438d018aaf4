// GPUs and cores of this machine, read from files below a root folder ("" for the real one), so that
// tests use a folder of their own. No driver library is asked: CUDA's own order and numbers are not
// needed, only how many devices there are.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace dlaunch {

// One entry for each /dev/nvidia[0-9]+: "0", "1", … as CUDA counts them (the files' own numbers are
// the driver's, and a container may have nvidia3 alone).
std::vector<std::string> gpu_files(const std::string& root);

// CPUs in this process's affinity mask.
std::vector<int> usable_cpus();

// CPU time that the cgroup allows, in CPUs, the tightest limit on the way up; none if there is no limit.
std::optional<double> cpu_quota(const std::string& root);

// Physical cores among `cpus`; a CPU whose topology is not told counts as a core.
int physical_cores(const std::string& root, const std::vector<int>& cpus);

// At most the quota, rounded down, and at least 1.
int within_quota(int count, std::optional<double> quota);

}  // namespace dlaunch
