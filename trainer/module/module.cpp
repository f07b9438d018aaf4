#include "trainer/module/module.hpp"

#include <dlfcn.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>

namespace trainer {
namespace {

// Opens `file` beside the program and asks its one function for what it has.
template <class Module>
Result<const Module*> open(const char* file, const char* function) {
  std::error_code failed;
  auto folder = std::filesystem::read_symlink("/proc/self/exe", failed).parent_path();
  if (failed) return Error{Errc::failed, "/proc/self/exe: " + failed.message()};
  auto path = (folder / file).string();
  if (!std::filesystem::exists(path, failed))
    return Error{Errc::not_found, std::string("there is no ") + file + " beside the program"};
  void* module = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!module) return Error{Errc::not_found, std::string(file) + " cannot be opened: " + ::dlerror()};
  auto* get = reinterpret_cast<const Module* (*)()>(::dlsym(module, function));
  if (!get) return Error{Errc::not_found, std::string(file) + " has no function " + function};
  const auto* found = get();
  if (std::strcmp(found->build, kModuleBuild) != 0) {
    return Error{Errc::not_found,
                 std::string(file) + " is of another build (" + found->build + ", not " + kModuleBuild + ")"};
  }
  return found;
}

}  // namespace

Result<const HostModule*> host_module() {
  static const auto module = [] {
    // The library starts a thread for each core as it is loaded, unless told otherwise.
    ::setenv("OPENBLAS_NUM_THREADS", "1", 0);
    return open<HostModule>("train_host.so", "train_host_module");
  }();
  return module;
}

Result<const CudaModule*> cuda_module() {
  static const auto module = open<CudaModule>("train_cuda.so", "train_cuda_module");
  return module;
}

}  // namespace trainer
