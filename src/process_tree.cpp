#include "dlaunch/process_tree.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <set>

namespace dlaunch {

namespace {

bool read_stat(const char* pid, ProcessEntry& entry) {
  std::string path = std::string("/proc/") + pid + "/stat";
  int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return false;
  char text[1024];
  ssize_t bytes = ::read(fd, text, sizeof text);
  ::close(fd);
  return bytes > 0 && parse_stat(std::string(text, static_cast<std::size_t>(bytes)), entry);
}

std::vector<ProcessEntry> all_processes() {
  std::vector<ProcessEntry> all;
  DIR* folder = ::opendir("/proc");
  if (!folder) return all;
  while (dirent* item = ::readdir(folder)) {
    ProcessEntry entry;
    if (item->d_name[0] >= '1' && item->d_name[0] <= '9' && read_stat(item->d_name, entry))
      all.push_back(entry);
  }
  ::closedir(folder);
  return all;
}

}  // namespace

bool parse_stat(const std::string& line, ProcessEntry& entry) {
  auto name_end = line.rfind(')');
  if (name_end == std::string::npos) return false;
  int parent = 0, group = 0;
  if (std::sscanf(line.c_str() + name_end + 1, " %c %d %d", &entry.state, &parent, &group) != 3) return false;
  entry.pid = std::atoi(line.c_str());
  entry.parent = parent;
  entry.group = group;
  return true;
}

std::vector<ProcessEntry> descendants_among(const std::vector<ProcessEntry>& processes, pid_t root) {
  std::set<pid_t> family{root};
  std::vector<ProcessEntry> found;
  // Parents need not come before their children in /proc, so go on until nothing is added.
  for (bool grew = true; grew;) {
    grew = false;
    for (const auto& entry : processes) {
      if (family.count(entry.parent) && family.insert(entry.pid).second) {
        grew = true;
        if (entry.state != 'Z' && entry.state != 'X') found.push_back(entry);
      }
    }
  }
  return found;
}

std::vector<ProcessEntry> descendants_of(pid_t root) { return descendants_among(all_processes(), root); }

char state_of(pid_t pid) {
  ProcessEntry entry;
  return read_stat(std::to_string(pid).c_str(), entry) ? entry.state : '?';
}

}  // namespace dlaunch
