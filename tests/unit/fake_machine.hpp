// A machine made of a map of files, for tests of what is pure but for the Machine's view.
#pragma once

#include <map>
#include <set>
#include <string>

#include "dlaunch/settings.hpp"

namespace dlaunch {

struct FakeMachine {
  std::map<std::string, std::string> files;  // path, as it will be asked for, to its text
  std::set<std::string> executable;          // those with the x bit
  std::set<std::string> folders;
  int gpus = 0, cpus = 4, cores = 4;
  std::string own_folder = "/opt/dlaunch/bin";

  void add(const std::string& path, const std::string& text, bool x = false) {
    files[path] = text;
    if (x) executable.insert(path);
  }

  Machine view() const {
    Machine machine;
    machine.is_readable_file = [this](const std::string& path) { return files.contains(path); };
    machine.is_executable_file = [this](const std::string& path) { return executable.contains(path); };
    machine.is_folder = [this](const std::string& path) { return folders.contains(path); };
    machine.read_file = [this](const std::string& path, std::size_t limit) {
      auto found = files.find(path);
      return found == files.end() ? std::string() : found->second.substr(0, limit);
    };
    machine.gpus = [this] {
      std::vector<std::string> list;
      for (int i = 0; i < gpus; ++i) list.push_back(std::to_string(i));
      return list;
    };
    machine.cpus = [this] { return cpus; };
    machine.cores = [this] { return cores; };
    machine.own_folder = own_folder;
    return machine;
  }
};

inline const std::string kElf = std::string(
    "\x7f"
    "ELF\2\1\1\0",
    8);

}  // namespace dlaunch
