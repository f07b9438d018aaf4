// Where the nodes of a job meet: which node hosts, and on which addresses it listens.
#pragma once

#include <string>
#include <vector>

#include "dlaunch/job.hpp"

namespace dlaunch {

// Addresses to bind on the hosting node; empty: all. A job of one node binds loopback, and the address
// of --master_addr if that was given and is local.
std::vector<std::string> listening_addresses(const Job& job);

// True if this machine is where `job` says the nodes meet: node 0 by rank; with assigned ranks the
// machine that has one of `meeting_addresses` (is_host overrides).
bool hosts_the_job(const Job& job, const std::vector<std::string>& meeting_addresses);

// Is it this host whoever asks: 127.x.y.z, ::1, localhost?
bool is_loopback(const std::string& address);

}  // namespace dlaunch
