#include "dlaunch/environment.hpp"

#include <cstring>

extern char** environ;

namespace dlaunch {

Environment Environment::of_this_process() {
  Map values;
  for (char** entry = environ; entry && *entry; ++entry) {
    if (const char* equals = std::strchr(*entry, '=')) {
      values.emplace(std::string(*entry, equals - *entry), std::string(equals + 1));
    }
  }
  return Environment(std::move(values));
}

std::optional<std::string> Environment::get(std::string_view name) const {
  auto found = values_.find(name);
  if (found == values_.end()) return std::nullopt;
  return found->second;
}

void Environment::erase(std::string_view name) {
  if (auto found = values_.find(name); found != values_.end()) values_.erase(found);
}

}  // namespace dlaunch
