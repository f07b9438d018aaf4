#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <fstream>

#include "dlaunch/devices.hpp"
#include "dlaunch/settings.hpp"

namespace dlaunch {

namespace {

bool has_mode(const std::string& path, mode_t type) {
  struct stat info {};
  return ::stat(path.c_str(), &info) == 0 && (info.st_mode & S_IFMT) == type;
}

std::string head_of(const std::string& path, std::size_t limit) {
  std::ifstream file(path, std::ios::binary);
  std::string bytes(limit, '\0');
  file.read(bytes.data(), static_cast<std::streamsize>(limit));
  bytes.resize(static_cast<std::size_t>(std::max<std::streamsize>(file.gcount(), 0)));
  return bytes;
}

std::string folder_of_this_binary() {
  std::array<char, 4096> path{};
  ssize_t length = ::readlink("/proc/self/exe", path.data(), path.size());
  if (length <= 0) return "";
  std::string file(path.data(), static_cast<std::size_t>(length));
  return file.substr(0, file.rfind('/'));
}

}  // namespace

Machine this_machine() {
  Machine machine;
  machine.is_readable_file = [](const std::string& path) {
    return has_mode(path, S_IFREG) && ::access(path.c_str(), R_OK) == 0;
  };
  machine.is_executable_file = [](const std::string& path) {
    return has_mode(path, S_IFREG) && ::access(path.c_str(), X_OK) == 0;
  };
  machine.is_folder = [](const std::string& path) { return has_mode(path, S_IFDIR); };
  machine.read_file = [](const std::string& path, std::size_t limit) {
    return has_mode(path, S_IFREG) ? head_of(path, limit) : "";
  };
  machine.gpus = [] { return gpu_files(""); };
  machine.cpus = [] { return within_quota(static_cast<int>(usable_cpus().size()), cpu_quota("")); };
  machine.cores = [] { return within_quota(physical_cores("", usable_cpus()), cpu_quota("")); };
  machine.own_folder = folder_of_this_binary();
  return machine;
}

}  // namespace dlaunch
