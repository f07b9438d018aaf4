#include "trainer/device/openblas/openblas.hpp"

#include <cblas.h>

#include <cstring>

namespace trainer {
namespace {

void gemm(bool transpose_a, bool transpose_b, int m, int n, int k, float alpha, const float* a, int lda,
          const float* b, int ldb, float beta, float* c, int ldc) {
  cblas_sgemm(CblasRowMajor, transpose_a ? CblasTrans : CblasNoTrans, transpose_b ? CblasTrans : CblasNoTrans,
              m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
}

}  // namespace

Gemm openblas_gemm() {
  openblas_set_num_threads(1);
  return gemm;
}

std::string openblas_description() {
  // "OpenBLAS 0.3.21 NO_AFFINITY …": the name and the version.
  std::string config = openblas_get_config();
  auto version_end = config.find(' ', std::strlen("OpenBLAS "));
  return config.substr(0, version_end) + " " + openblas_get_corename();
}

}  // namespace trainer
