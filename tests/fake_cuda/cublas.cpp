// libcublas for machines without a GPU; see README.md.
#include <cublas_v2.h>
#include <cuda_runtime_api.h>

struct cublasContext {
  cudaStream_t stream = nullptr;
};

namespace {

struct Product {
  bool transpose_a, transpose_b;
  int m, n, k;
  float alpha, beta;
  const float *a, *b;
  float* c;
  int lda, ldb, ldc;
};

void multiply(void* argument) {
  const Product p = *static_cast<Product*>(argument);
  delete static_cast<Product*>(argument);
  for (int column = 0; column < p.n; ++column) {
    for (int row = 0; row < p.m; ++row) {
      float sum = 0;
      for (int i = 0; i < p.k; ++i) {
        sum += p.a[p.transpose_a ? i + std::size_t(row) * p.lda : row + std::size_t(i) * p.lda] *
               p.b[p.transpose_b ? column + std::size_t(i) * p.ldb : i + std::size_t(column) * p.ldb];
      }
      float& c = p.c[row + std::size_t(column) * p.ldc];
      c = p.alpha * sum + (p.beta == 0 ? 0 : p.beta * c);
    }
  }
}

}  // namespace

extern "C" {

cublasStatus_t cublasCreate_v2(cublasHandle_t* handle) {
  *handle = new cublasContext;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasDestroy_v2(cublasHandle_t handle) {
  delete handle;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasSetStream_v2(cublasHandle_t handle, cudaStream_t stream) {
  handle->stream = stream;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasSetWorkspace_v2(cublasHandle_t, void*, std::size_t) { return CUBLAS_STATUS_SUCCESS; }
cublasStatus_t cublasSetMathMode(cublasHandle_t, cublasMath_t) { return CUBLAS_STATUS_SUCCESS; }
const char* cublasGetStatusString(cublasStatus_t) { return "the stand-in refuses"; }

cublasStatus_t cublasSgemm_v2(cublasHandle_t handle, cublasOperation_t op_a, cublasOperation_t op_b, int m,
                              int n, int k, const float* alpha, const float* a, int lda, const float* b,
                              int ldb, const float* beta, float* c, int ldc) {
  if (lda < (op_a == CUBLAS_OP_N ? m : k) || ldb < (op_b == CUBLAS_OP_N ? k : n) || ldc < m) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  cudaLaunchHostFunc(
      handle->stream, multiply,
      new Product{op_a == CUBLAS_OP_T, op_b == CUBLAS_OP_T, m, n, k, *alpha, *beta, a, b, c, lda, ldb, ldc});
  return CUBLAS_STATUS_SUCCESS;
}

}  // extern "C"
