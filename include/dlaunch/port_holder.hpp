// Who holds a TCP port of this machine, for the message when ours is taken. Reads /proc only, as far as
// its rights go; a holder of another user or container may stay unknown.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace dlaunch {

struct PortHolder {
  int pid = 0;
  std::string program;  // as /proc/PID/comm has it
};

std::optional<PortHolder> port_holder(std::uint16_t port);

// The inodes of the sockets at `port` in the text of /proc/net/tcp or tcp6, listening ones first.
std::vector<std::string> sockets_at(std::string_view proc_net_tcp, std::uint16_t port);

}  // namespace dlaunch
