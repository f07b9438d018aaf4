#include "trainer/module/module.hpp"

#include <dlfcn.h>
#include <unistd.h>

#include <climits>
#include <cstdlib>

#include "trainer/module/open.hpp"

namespace trainer {
namespace {

// The folder of the program's file, links resolved, with a slash at its end.
std::string program_folder() {
  char path[PATH_MAX];
  const ssize_t length = ::readlink("/proc/self/exe", path, sizeof path);
  if (length <= 0) return "./";
  const std::string file(path, static_cast<std::size_t>(length));
  return file.substr(0, file.rfind('/') + 1);
}

}  // namespace

Result<void*> function_in(const std::string& path, const char* function) {
  // Never closed: what it made (devices, threads of its libraries) may outlive every owner that could.
  void* module = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!module) {
    const char* reason = ::dlerror();
    const bool there = ::access(path.c_str(), F_OK) == 0;
    return Error{there ? Errc::failed : Errc::not_found,
                 "'" + path + "' was not opened: " + (reason ? reason : "no reason given"),
                 there ? "" : "it is built where its libraries are found, and lies beside the program"};
  }
  void* address = ::dlsym(module, function);
  if (!address) return Error{Errc::failed, "'" + path + "' has no function '" + function + "'"};
  return address;
}

Result<const HostModule*> host_module() {
  static const Result<const HostModule*> module = [] {
    // OpenBLAS starts a thread for each processor when it is loaded, unless it is told not to.
    ::setenv("OPENBLAS_NUM_THREADS", "1", /*overwrite=*/0);
    return open_module<HostModule>(program_folder() + "train_host.so", "train_host_module");
  }();
  return module;
}

Result<const CudaModule*> cuda_module() {
  static const Result<const CudaModule*> module =
      open_module<CudaModule>(program_folder() + "train_cuda.so", "train_cuda_module");
  return module;
}

}  // namespace trainer
