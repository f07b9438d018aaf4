#include "trainer/module/module.hpp"

#include <nccl.h>

#include "trainer/collective/nccl/nccl_group.hpp"
#include "trainer/collective/nccl/nccl_reducer.hpp"
#include "trainer/device/cuda/cuda_device.hpp"

namespace trainer::cuda {
namespace {

std::string describe() {
  int runtime = 0;
  int nccl = 0;
  cudaRuntimeGetVersion(&runtime);
  ncclGetVersion(&nccl);
  return "CUDA " + std::to_string(runtime / 1000) + "." + std::to_string(runtime % 1000 / 10) + ", NCCL " +
         std::to_string(nccl / 10000) + "." + std::to_string(nccl / 100 % 100) + "." +
         std::to_string(nccl % 100);
}

Result<int> device_count() {
  int count = 0;
  const cudaError_t code = cudaGetDeviceCount(&count);
  if (code == cudaSuccess && count > 0) return count;
  cudaGetLastError();
  if (code == cudaErrorNoDevice || code == cudaSuccess) {
    return Error{Errc::not_found,
                 "no GPU (cudaGetDeviceCount: " + std::string(cudaGetErrorString(cudaErrorNoDevice)) + ")"};
  }
  if (code == cudaErrorStubLibrary || code == cudaErrorInsufficientDriver) {
    int driver = 0;
    cudaDriverGetVersion(&driver);
    const char* what = driver == 0 ? "no NVIDIA driver" : "the NVIDIA driver is too old";
    return Error{Errc::not_found,
                 std::string(what) + " (cudaGetDeviceCount: " + cudaGetErrorString(code) + ")"};
  }
  return Error{Errc::failed, std::string("cudaGetDeviceCount: ") + cudaGetErrorString(code)};
}

Result<std::unique_ptr<Device>> open_device(int ordinal) {
  auto device = CudaDevice::open(ordinal);
  if (!device) return device.error();
  return std::unique_ptr<Device>(std::move(*device));
}

}  // namespace
}  // namespace trainer::cuda

extern "C" __attribute__((visibility("default"))) const trainer::CudaModule* train_cuda_module() {
  static const trainer::CudaModule module{
      trainer::kModuleBuild,
      trainer::cuda::describe,
      trainer::cuda::device_count,
      trainer::cuda::open_device,
      trainer::cuda::nccl_id,
      trainer::cuda::make_nccl,
      trainer::cuda::make_nccl_reducer,
  };
  return &module;
}
