// Matrix products by OpenBLAS, for the host module. It picks its kernels for the processor that it runs on;
// here it uses the caller's thread alone, so the same call gives the same bits.
#pragma once

#include <string>

#include "trainer/module/module.hpp"

namespace trainer {

Gemm openblas_gemm();
std::string openblas_description();  // "OpenBLAS 0.3.21 SkylakeX"

}  // namespace trainer
