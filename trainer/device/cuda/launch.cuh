// Running a functor on a device, one call for each index: the one kernel that there is. For
// the functors see kernels.hpp.
//
// Every kernel that is launched also leaves word here how the host runs it. A stand-in for the CUDA runtime
// finds it through train_cuda_host_runner(), so that all of this module but the GPU's own execution runs on a
// machine without one.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>

#include "trainer/device/cuda/host_runner.hpp"

namespace trainer::cuda {

template <class F>
__global__ void run(F functor, std::size_t count) {
  const std::size_t stride = std::size_t(gridDim.x) * blockDim.x;
  for (std::size_t i = std::size_t(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += stride) functor(i);
}

template <class F>
void run_on_host(const void* functor, std::size_t count) {
  const F& call = *static_cast<const F*>(functor);
  for (std::size_t i = 0; i < count; ++i) call(i);
}

inline constexpr unsigned kBlock = 256;
inline constexpr std::size_t kMostBlocks = 4096;  // above, a thread takes several indices

template <class F>
cudaError_t launch(cudaStream_t stream, F functor, std::size_t count) {
  static HostRunner runner{reinterpret_cast<const void*>(&run<F>), sizeof(F), &run_on_host<F>, nullptr};
  static const bool known = (remember(runner), true);
  (void)known;
  if (count == 0) return cudaSuccess;
  const std::size_t blocks = (count + kBlock - 1) / kBlock;
  void* arguments[] = {&functor, &count};
  return ::cudaLaunchKernel(runner.kernel, dim3(unsigned(blocks < kMostBlocks ? blocks : kMostBlocks)),
                            dim3(kBlock), arguments, 0, stream);
}

}  // namespace trainer::cuda
