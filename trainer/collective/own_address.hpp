// Literals for names, and the address of this host that others reach.
#pragma once

#include <optional>
#include <string>

#include "dlaunch/result.hpp"

namespace trainer {

// The first address of a name; IPv4 is preferred, so that all ranks choose alike.
dlaunch::Result<std::string> literal_of(const std::string& host);

// The address from which this host would send to `peer`, a literal; without one, to the outside world, or
// else 127.0.0.1. `interface` (GLOO_SOCKET_IFNAME) decides where it is given. Nothing is sent.
dlaunch::Result<std::string> own_address(const std::optional<std::string>& peer,
                                         const std::optional<std::string>& interface);

}  // namespace trainer
