#include "tests/cuda/world.hpp"

#include <dlfcn.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <sstream>
#include <thread>

namespace world {
namespace {

using namespace std::chrono_literals;
using trainer::Error;
using trainer::Milliseconds;
using trainer::Result;
namespace fs = std::filesystem;

constexpr auto kLimit = 60s;  // of a job: for a hang, not for a slow machine

std::map<std::string, std::function<std::string()>>& roles() {
  static std::map<std::string, std::function<std::string()>> all;
  return all;
}

std::string contents(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

struct Folders {
  std::vector<std::string> made;
  ~Folders() {
    std::error_code ignored;
    for (const auto& folder : made) fs::remove_all(folder, ignored);
  }
} folders;

pid_t start(const Job& job, int rank, const std::string& folder, const std::string& output) {
  Variables extra = job.everywhere;
  if (auto own = job.at.find(rank); own != job.at.end()) {
    for (const auto& [name, value] : own->second) extra[name] = value;
  }
  extra.emplace("FAKE_CUDA_UUID", std::to_string(rank));
  extra["CUDA_TESTS_ROLE"] = job.role;
  extra["CUDA_TESTS_RANK"] = std::to_string(rank);
  extra["CUDA_TESTS_SIZE"] = std::to_string(job.ranks);
  extra["CUDA_TESTS_FOLDER"] = folder;
  std::vector<std::string> texts;
  for (char** at = environ; *at; ++at) {
    const std::string text = *at;
    if (!extra.contains(text.substr(0, text.find('=')))) texts.push_back(text);
  }
  for (const auto& [name, value] : extra) texts.push_back(name + "=" + value);
  std::vector<char*> pointers;
  for (auto& text : texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  const int out = ::open(output.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
  char name[] = "cuda_tests";
  char* arguments[] = {name, nullptr};
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::dup2(out, 1);
    ::execve("/proc/self/exe", arguments, pointers.data());
    ::_exit(127);
  }
  ::close(out);
  return pid;
}

std::string ended(int status) {
  if (WIFSIGNALED(status)) return "(signal " + std::to_string(WTERMSIG(status)) + ")";
  return WEXITSTATUS(status) == 0 ? "" : "(exit " + std::to_string(WEXITSTATUS(status)) + ")";
}

}  // namespace

Role::Role(const char* name, std::function<std::string()> play) { roles()[name] = std::move(play); }

std::string variable(const std::string& name) {
  const char* value = std::getenv(name.c_str());
  return value ? value : "";
}
int rank() { return std::stoi(variable("CUDA_TESTS_RANK")); }
int size() { return std::stoi(variable("CUDA_TESTS_SIZE")); }

const trainer::CudaModule& module() {
  static const trainer::CudaModule* opened = [] {
    void* library = ::dlopen(TRAIN_CUDA, RTLD_NOW | RTLD_LOCAL);
    if (!library) {
      std::fprintf(stderr, "%s\n", ::dlerror());
      std::exit(1);
    }
    using Function = const trainer::CudaModule* (*)();
    return reinterpret_cast<Function>(::dlsym(library, "train_cuda_module"))();
  }();
  return *opened;
}

bool on_stand_ins() {
  module();
  Dl_info where{};
  void* library = ::dlopen("libcublas.so." CUDA_MAJOR, RTLD_NOW | RTLD_NOLOAD);
  return library && ::dladdr(::dlsym(library, "cublasCreate_v2"), &where) &&
         std::string(where.dli_fname).find("fake_cuda") != std::string::npos;
}

std::string temporary_folder() {
  std::string name = fs::temp_directory_path() / "cuda-tests-XXXXXX";
  if (!::mkdtemp(name.data())) std::abort();
  folders.made.push_back(name);
  return name;
}

std::string FileRendezvous::path_of(const std::string& key) const {
  std::string name = key;
  for (char& c : name) {
    if (c == '/') c = '.';
  }
  return variable("CUDA_TESTS_FOLDER") + "/" + name;
}

Result<> FileRendezvous::set(const std::string& key, const std::string& value) {
  const std::string unfinished = path_of(key) + "~" + std::to_string(::getpid());
  std::ofstream(unfinished, std::ios::binary) << value;
  fs::rename(unfinished, path_of(key));
  return {};
}

Result<bool> FileRendezvous::has(const std::string& key) { return fs::exists(path_of(key)); }

Result<std::string> FileRendezvous::get(const std::string& key, Milliseconds limit) {
  const auto end = std::chrono::steady_clock::now() + limit;
  while (!*has(key)) {
    if (std::chrono::steady_clock::now() >= end) return Error{trainer::Errc::timed_out, "no " + key};
    std::this_thread::sleep_for(1ms);
  }
  return contents(path_of(key));
}

Result<Seat> take_seat(Milliseconds timeout) {
  Seat seat;
  seat.rendezvous = std::make_unique<FileRendezvous>();
  auto device = module().open_device(0);
  if (!device) return device.error();
  seat.device = std::move(*device);
  if (rank() == 0) {
    auto id = module().nccl_id();
    if (!id) return id.error();
    if (auto told = seat.rendezvous->set("id", *id); !told) return told.error();
  }
  auto id = seat.rendezvous->get("id", 30s);
  if (!id) return id.error();
  auto group =
      module().make_nccl(*seat.device, *id, {rank(), size(), "127.0.0.1", timeout}, *seat.rendezvous);
  if (!group) return group.error();
  seat.group = std::move(*group);
  return seat;
}

std::vector<std::string> play(const Job& job) {
  const std::string folder = temporary_folder();
  std::vector<pid_t> pids;
  std::vector<std::string> results(std::size_t(job.ranks));
  const auto output = [&](int rank) { return folder + "/output-" + std::to_string(rank); };
  for (int rank = 0; rank < job.ranks; ++rank) pids.push_back(start(job, rank, folder, output(rank)));
  std::vector<bool> over(pids.size(), false);
  const auto end = std::chrono::steady_clock::now() + kLimit;
  const auto stays = [&](std::size_t i) {
    return std::find(job.stay.begin(), job.stay.end(), int(i)) != job.stay.end();
  };
  for (bool waiting = true; waiting && std::chrono::steady_clock::now() < end;) {
    waiting = false;
    for (std::size_t i = 0; i < pids.size(); ++i) {
      int status = 0;
      if (!over[i] && ::waitpid(pids[i], &status, WNOHANG) == pids[i]) {
        over[i] = true;
        results[i] = contents(output(int(i))) + ended(status);
      }
      waiting = waiting || (!over[i] && !stays(i));
    }
    std::this_thread::sleep_for(1ms);
  }
  for (std::size_t i = 0; i < pids.size(); ++i) {
    if (over[i]) continue;
    ::kill(pids[i], SIGKILL);
    ::waitpid(pids[i], nullptr, 0);
    results[i] = contents(output(int(i))) + (stays(i) ? "(stays)" : "(too late)");
  }
  return results;
}

}  // namespace world

int main(int argc, char** argv) {
  if (const auto role = world::variable("CUDA_TESTS_ROLE"); !role.empty()) {
    std::cout << world::roles().at(role)() << std::flush;
    return 0;
  }
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
