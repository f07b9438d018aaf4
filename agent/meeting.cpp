#include "agent/meeting.hpp"

#include <algorithm>
#include <chrono>

#include "dlaunch/resolver.hpp"

namespace dlaunch {

namespace {

constexpr std::chrono::seconds kNameLimit{5};

bool is_local(const std::string& address, const Addresses& own) {
  return std::find(own.begin(), own.end(), address) != own.end() || address.rfind("127.", 0) == 0;
}

}  // namespace

std::vector<std::string> listening_addresses(const Job& job) {
  if (job.nnodes > 1) return {};
  std::vector<std::string> addresses{"127.0.0.1"};
  if (!job.master_addr_given) return addresses;
  auto named = resolve(job.master_addr, std::chrono::steady_clock::now() + kNameLimit);
  if (!named) return {};  // the workers may know the name all the same
  auto own = local_addresses();
  for (const auto& address : *named) {
    if (address != "127.0.0.1" && is_local(address, own)) addresses.push_back(address);
  }
  return addresses;
}

bool hosts_the_job(const Job& job, const std::vector<std::string>& meeting_addresses) {
  if (job.nnodes == 1) return true;
  if (job.node_rank) return *job.node_rank == 0;
  if (job.is_host) return *job.is_host;
  auto own = local_addresses();
  return std::any_of(meeting_addresses.begin(), meeting_addresses.end(),
                     [&](const std::string& address) { return is_local(address, own); });
}

bool is_loopback(const std::string& address) {
  return address == "localhost" || address == "::1" || address.starts_with("127.");
}

}  // namespace dlaunch
