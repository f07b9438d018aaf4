#include "dlaunch/devices.hpp"

#include <sched.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

namespace dlaunch {

namespace fs = std::filesystem;

namespace {

std::string text_of(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

// "max 100000", "150000 100000"
std::optional<double> quota_of(const std::string& quota, const std::string& period) {
  char* end = nullptr;
  double most = std::strtod(quota.c_str(), &end);
  if (end == quota.c_str() || most <= 0) return std::nullopt;
  double each = std::strtod(period.c_str(), &end);
  if (end == period.c_str() || each <= 0) return std::nullopt;
  return most / each;
}

std::optional<double> quota_in(const std::string& folder) {
  if (std::string text = text_of(folder + "/cpu.max"); !text.empty()) {
    auto blank = text.find(' ');
    return blank == text.npos ? std::nullopt : quota_of(text.substr(0, blank), text.substr(blank + 1));
  }
  return quota_of(text_of(folder + "/cpu.cfs_quota_us"), text_of(folder + "/cpu.cfs_period_us"));
}

std::optional<double> tightest(std::optional<double> a, std::optional<double> b) {
  if (!a || !b) return a ? a : b;
  return std::min(*a, *b);
}

// From `path` below `mount` up to the mount itself; a path of another cgroup namespace is not there.
std::optional<double> tightest_upwards(const std::string& mount, std::string path) {
  std::optional<double> quota;
  for (;;) {
    while (!path.empty() && path.back() == '/') path.pop_back();
    quota = tightest(quota, quota_in(mount + path));
    if (path.empty()) return quota;
    path.erase(path.rfind('/') == path.npos ? 0 : path.rfind('/'));
  }
}

}  // namespace

std::vector<std::string> gpu_files(const std::string& root) {
  std::vector<std::string> found;
  std::error_code none;
  for (const auto& entry : fs::directory_iterator(root + "/dev", none)) {
    std::string name = entry.path().filename();
    if (!name.starts_with("nvidia") || name.size() == 6) continue;
    if (std::all_of(name.begin() + 6, name.end(), [](unsigned char c) { return std::isdigit(c); })) {
      found.push_back(std::to_string(found.size()));
    }
  }
  return found;
}

std::vector<int> usable_cpus() {
  for (int size = CPU_SETSIZE; size <= (1 << 20); size *= 2) {  // EINVAL: the kernel has more CPUs
    cpu_set_t* set = CPU_ALLOC(size);
    std::vector<int> cpus;
    if (::sched_getaffinity(0, CPU_ALLOC_SIZE(size), set) == 0) {
      for (int cpu = 0; cpu < size; ++cpu) {
        if (CPU_ISSET_S(cpu, CPU_ALLOC_SIZE(size), set)) cpus.push_back(cpu);
      }
    }
    CPU_FREE(set);
    if (!cpus.empty()) return cpus;
  }
  return {0};
}

std::optional<double> cpu_quota(const std::string& root) {
  std::optional<double> quota;
  std::istringstream lines(text_of(root + "/proc/self/cgroup"));
  for (std::string line; std::getline(lines, line);) {  // "0::/a/b", "4:cpu,cpuacct:/a/b"
    auto first = line.find(':');
    auto second = line.find(':', first + 1);
    if (first == line.npos || second == line.npos) continue;
    std::string controllers = line.substr(first + 1, second - first - 1);
    std::string path = line.substr(second + 1);
    if (controllers.empty()) {
      quota = tightest(quota, tightest_upwards(root + "/sys/fs/cgroup", path));
    } else if (("," + controllers + ",").find(",cpu,") != std::string::npos) {
      for (const std::string& mount : {controllers, std::string("cpu")}) {
        std::string folder = root + "/sys/fs/cgroup/" + mount;
        std::error_code none;
        if (!fs::is_directory(folder, none)) continue;
        quota = tightest(quota, tightest_upwards(folder, path));
        break;
      }
    }
  }
  return quota;
}

int physical_cores(const std::string& root, const std::vector<int>& cpus) {
  std::set<std::string> cores;
  for (int cpu : cpus) {
    std::string folder = root + "/sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/topology/";
    std::string siblings = text_of(folder + "core_cpus_list");
    if (siblings.empty()) siblings = text_of(folder + "thread_siblings_list");
    cores.insert(siblings.empty() ? "cpu" + std::to_string(cpu) : siblings);
  }
  return static_cast<int>(cores.size());
}

int within_quota(int count, std::optional<double> quota) {
  if (quota && *quota < count) count = static_cast<int>(*quota);
  return std::max(1, count);
}

}  // namespace dlaunch
