#include "dlaunch/device_list.hpp"

#include <cstdlib>
#include <optional>
#include <set>
#include <sstream>

namespace dlaunch {

namespace {

std::vector<std::string> entries(const std::string& list) {
  std::vector<std::string> found;
  std::istringstream parts(list);
  for (std::string part; std::getline(parts, part, ',');) {
    auto first = part.find_first_not_of(" \t\r\n");
    auto last = part.find_last_not_of(" \t\r\n");
    found.push_back(first == part.npos ? "" : part.substr(first, last - first + 1));
  }
  return found;
}

// CUDA reads an index as strtol does: "1gpu2" is 1, "+3" is 3, "-0" is 0.
std::optional<long> index_of(const std::string& entry) {
  char* end = nullptr;
  long number = std::strtol(entry.c_str(), &end, 10);
  if (end == entry.c_str()) return std::nullopt;
  return number;
}

bool is_negative(const std::string& entry) {
  auto index = index_of(entry);
  return index && *index < 0;
}

}  // namespace

std::vector<std::string> visible_devices(const std::string& list) {
  std::vector<std::string> shown;
  std::set<std::string> meant;
  for (const std::string& entry : entries(list)) {
    bool named = entry.starts_with("GPU-") || entry.starts_with("MIG-");
    auto index = index_of(entry);
    if (!named && (!index || *index < 0)) break;
    if (!meant.insert(named ? entry : std::to_string(*index)).second) return {};
    shown.push_back(entry);
  }
  return shown;
}

std::vector<std::string> listed_devices(const std::string& list) {
  std::vector<std::string> listed;
  for (const std::string& entry : entries(list)) {
    if (entry.empty() || is_negative(entry)) break;
    listed.push_back(entry);
  }
  return listed;
}

}  // namespace dlaunch
