// A snapshot of environment variables: plain data, so that everything that reads the environment
// can be a pure function of it.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

namespace dlaunch {

class Environment {
 public:
  using Map = std::map<std::string, std::string, std::less<>>;

  Environment() = default;
  explicit Environment(Map values) : values_(std::move(values)) {}
  static Environment of_this_process();

  std::optional<std::string> get(std::string_view name) const;
  bool has(std::string_view name) const { return values_.find(name) != values_.end(); }
  void set(std::string name, std::string value) { values_[std::move(name)] = std::move(value); }
  void erase(std::string_view name);
  const Map& values() const { return values_; }

 private:
  Map values_;
};

}  // namespace dlaunch
