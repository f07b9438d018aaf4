#include "trainer/module/module.hpp"

#include "trainer/collective/gloo/gloo_collective.hpp"
#include "trainer/device/openblas/openblas.hpp"

namespace trainer {
namespace {

const HostModule kModule{kModuleBuild, openblas_gemm(), [] { return openblas_description(); },
                         &GlooCollective::connect};

}  // namespace
}  // namespace trainer

extern "C" __attribute__((visibility("default"))) const trainer::HostModule* train_host_module() {
  return &trainer::kModule;
}
