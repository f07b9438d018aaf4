#include <algorithm>
#include <vector>

#include "trainer/device/cpu/cpu_device.hpp"

namespace trainer {

// By rows of c: each is a sum of rows of op(b), which the compiler makes vector code of. A transposed b is
// turned once, so that its rows lie together.
void plain_gemm(bool transpose_a, bool transpose_b, int m, int n, int k, float alpha, const float* a, int lda,
                const float* b, int ldb, float beta, float* c, int ldc) {
  const auto rows = std::size_t(m), columns = std::size_t(n), inner = std::size_t(k);
  std::vector<float> turned;
  if (transpose_b) {
    turned.resize(inner * columns);
    for (std::size_t j = 0; j < columns; ++j) {
      for (std::size_t p = 0; p < inner; ++p) turned[p * columns + j] = b[j * std::size_t(ldb) + p];
    }
    b = turned.data();
    ldb = n;
  }
  constexpr std::size_t kBlock = 64;  // rows of op(b) that stay in the cache
  for (std::size_t i = 0; i < rows; ++i) {
    auto* row = c + i * std::size_t(ldc);
    if (beta == 0) {
      std::fill_n(row, columns, 0.0f);
    } else {
      for (std::size_t j = 0; j < columns; ++j) row[j] *= beta;
    }
  }
  for (std::size_t first = 0; first < inner; first += kBlock) {
    auto last = std::min(first + kBlock, inner);
    for (std::size_t i = 0; i < rows; ++i) {
      auto* __restrict row = c + i * std::size_t(ldc);
      for (auto p = first; p < last; ++p) {
        const auto factor = alpha * (transpose_a ? a[p * std::size_t(lda) + i] : a[i * std::size_t(lda) + p]);
        const auto* __restrict from = b + p * std::size_t(ldb);
        for (std::size_t j = 0; j < columns; ++j) row[j] += factor * from[j];
      }
    }
  }
}

}  // namespace trainer
