#include "dlaunch/port_holder.hpp"

#include <charconv>
#include <filesystem>
#include <fstream>
#include <sstream>

namespace dlaunch {
namespace {

namespace fs = std::filesystem;

std::string text_of(const fs::path& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

std::optional<int> pid_of(const fs::path& folder) {
  const std::string name = folder.filename();
  int pid = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), pid);
  if (error != std::errc() || end != name.data() + name.size()) return std::nullopt;
  return pid;
}

bool holds(const fs::path& process, const std::string& socket) {
  std::error_code error;
  for (fs::directory_iterator fd(process / "fd", error), end; !error && fd != end; fd.increment(error)) {
    std::error_code unreadable;
    if (fs::read_symlink(fd->path(), unreadable) == socket) return true;
  }
  return false;
}

}  // namespace

std::vector<std::string> sockets_at(std::string_view proc_net_tcp, std::uint16_t port) {
  constexpr std::string_view kListening = "0A";
  std::vector<std::string> listening, others;
  std::istringstream lines{std::string(proc_net_tcp)};
  std::string line;
  std::getline(lines, line);  // the heading
  while (std::getline(lines, line)) {
    std::istringstream fields(line);
    std::string slot, local, remote, state, skip, inode;
    fields >> slot >> local >> remote >> state >> skip >> skip >> skip >> skip >> skip >> inode;
    const std::size_t colon = local.rfind(':');
    unsigned found = 0;
    if (!fields || colon == std::string::npos) continue;
    std::from_chars(local.data() + colon + 1, local.data() + local.size(), found, 16);
    if (found != port || inode == "0") continue;
    (state == kListening ? listening : others).push_back(inode);
  }
  listening.insert(listening.end(), others.begin(), others.end());
  return listening;
}

std::optional<PortHolder> port_holder(std::uint16_t port) {
  for (const char* table : {"/proc/net/tcp", "/proc/net/tcp6"}) {
    for (const std::string& inode : sockets_at(text_of(table), port)) {
      std::error_code error;
      for (fs::directory_iterator process("/proc", error), end; !error && process != end;
           process.increment(error)) {
        const std::optional<int> pid = pid_of(process->path());
        if (!pid || !holds(process->path(), "socket:[" + inode + "]")) continue;
        std::string program = text_of(process->path() / "comm");
        if (program.ends_with('\n')) program.pop_back();
        return PortHolder{*pid, program};
      }
    }
  }
  return std::nullopt;
}

}  // namespace dlaunch
