// The CPU as a Device: plain memory, everything done when the call returns. Matrix products are a function
// given to it (OpenBLAS's from the host module, or plain_gemm, which needs nothing).
#pragma once

#include <memory>
#include <string>

#include "trainer/device/device.hpp"
#include "trainer/module/module.hpp"

namespace trainer {

std::unique_ptr<Device> make_cpu_device(int index, Gemm gemm, std::string description);

void plain_gemm(bool transpose_a, bool transpose_b, int m, int n, int k, float alpha, const float* a, int lda,
                const float* b, int ldb, float beta, float* c, int ldc);

}  // namespace trainer
