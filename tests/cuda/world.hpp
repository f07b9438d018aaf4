// What the tests of train_cuda.so share: the module, and ranks as processes. A rank is this program once
// more, told by its environment which role to play; so no process forks after it has threads.
#pragma once

#include <sys/types.h>

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "trainer/module/module.hpp"

namespace world {

const trainer::CudaModule& module();
bool on_stand_ins();  // or on the real libraries

using Variables = std::map<std::string, std::string>;

// Registers what a process does in a role; what it returns goes to its standard output.
struct Role {
  Role(const char* name, std::function<std::string()> play);
};

// This process's place, in a role.
int rank();
int size();
std::string variable(const std::string& name);

// In a folder that all ranks of a test have in common.
class FileRendezvous : public trainer::Rendezvous {
 public:
  trainer::Result<> set(const std::string& key, const std::string& value) override;
  trainer::Result<std::string> get(const std::string& key, trainer::Milliseconds limit) override;
  trainer::Result<bool> has(const std::string& key) override;

 private:
  std::string path_of(const std::string& key) const;
};

// This rank's device and its group over NCCL, of all ranks.
struct Seat {
  std::unique_ptr<trainer::Device> device;
  std::unique_ptr<FileRendezvous> rendezvous;
  std::unique_ptr<trainer::Collective> group;
};
trainer::Result<Seat> take_seat(trainer::Milliseconds timeout);

// Starts `ranks` processes in a role and waits for those that are to end; the others are killed then. What
// each printed, by rank; "(signal 9)" and "(exit 3)" for ends that are not 0, "(too late)" after `limit`.
struct Job {
  std::string role;
  int ranks = 1;
  Variables everywhere = {};
  std::map<int, Variables> at = {};
  std::vector<int> stay = {};  // ranks that do not end by themselves
};
std::vector<std::string> play(const Job& job);

// A folder that is removed at the end of the program.
std::string temporary_folder();

}  // namespace world
