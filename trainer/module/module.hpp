// The two parts of `train` that need large libraries, each a shared object beside the program, opened when it
// is wanted: train_host.so (OpenBLAS, Gloo) and train_cuda.so (CUDA, cuBLAS, NCCL). Program and modules are
// built together; a module of another build is refused.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "trainer/collective/collective.hpp"
#include "trainer/device/device.hpp"
#include "trainer/parallel/reducer.hpp"

namespace trainer {

// c = alpha op(a) op(b) + beta c, row-major; see Device::gemm.
using Gemm = void (*)(bool transpose_a, bool transpose_b, int m, int n, int k, float alpha, const float* a,
                      int lda, const float* b, int ldb, float beta, float* c, int ldc);

struct HostModule {
  const char* build;          // kModuleBuild of the program
  Gemm gemm;                  // one thread
  std::string (*describe)();  // "OpenBLAS 0.3.21 SkylakeX, Gloo"
  Result<std::unique_ptr<Collective>> (*make_gloo)(const GroupOptions& options, Rendezvous& rendezvous);
};

struct CudaModule {
  const char* build;
  std::string (*describe)();      // "CUDA 13.0, NCCL 2.28.9"
  Result<int> (*device_count)();  // an Error says why there is no GPU to use
  Result<std::unique_ptr<Device>> (*open_device)(int ordinal);
  Result<std::string> (*nccl_id)();  // for rank 0, 128 bytes
  // A group over NCCL: as a Collective for small things on host memory, and as a Reducer.
  Result<std::unique_ptr<Collective>> (*make_nccl)(Device& device, const std::string& id,
                                                   const GroupOptions& options, Rendezvous& rendezvous);
  Result<std::unique_ptr<Reducer>> (*make_nccl_reducer)(Collective& nccl, Device& device, float* gradients,
                                                        std::vector<Bucket> buckets);
};

// Raise the number with every change of what this header includes.
inline constexpr const char* kModuleBuild = DLAUNCH_VERSION " interface 1";

// The modules export one function each: `const HostModule* train_host_module()`, `const CudaModule*
// train_cuda_module()`. An Error says which file was not opened and why. Opened once; never closed.
Result<const HostModule*> host_module();
Result<const CudaModule*> cuda_module();

}  // namespace trainer
