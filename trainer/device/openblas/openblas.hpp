// OpenBLAS's matrix product, one thread.
#pragma once

#include <string>

#include "trainer/module/module.hpp"

namespace trainer {

Gemm openblas_gemm();
std::string openblas_description();  // "OpenBLAS 0.3.21 SkylakeX"

}  // namespace trainer
