// How the host does the work of a kernel, for a stand-in of the CUDA runtime: plain data, found by the
// address that cudaLaunchKernel is given. The kernel's arguments are a functor and a count.
#pragma once

#include <cstddef>

namespace trainer::cuda {

struct HostRunner {
  const void* kernel;
  std::size_t functor_bytes;
  void (*run)(const void* functor, std::size_t count);
  const HostRunner* next;
};

// `runner` lives as long as the module. Any thread may.
void remember(HostRunner& runner);

}  // namespace trainer::cuda

// Null for a kernel that was never launched.
extern "C" const trainer::cuda::HostRunner* train_cuda_host_runner(const void* kernel);
