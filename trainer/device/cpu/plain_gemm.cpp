// A matrix product without a library. Blocks of both matrices are laid out anew, so that the innermost loop
// reads them in order whatever was transposed, and a tile of the result stays in registers meanwhile.
#include <algorithm>
#include <cstddef>
#include <cstring>
#include <vector>

#include "trainer/device/cpu/cpu_device.hpp"
#include "trainer/device/cpu/loops.hpp"

namespace trainer {
namespace {

constexpr int kTileRows = 6;
constexpr int kTileColumns = 16;
constexpr int kBlockRows = 96;      // of a, times kBlockInner: in the second-level cache
constexpr int kBlockColumns = 512;  // of b
constexpr int kBlockInner = 256;

using Vector = float __attribute__((vector_size(32), aligned(4), may_alias));
constexpr int kLanes = 8;

// Strips of `width` rows of op(a), or columns of op(b): [strip][inner][width], with zeros where the matrix
// ends.
void pack(float* to, const float* from, std::size_t across_step, std::size_t inner_step, int across,
          int inner, int width) {
  for (int strip = 0; strip < across; strip += width) {
    const int have = std::min(width, across - strip);
    const float* corner = from + std::size_t(strip) * across_step;
    for (int k = 0; k < inner; ++k, to += width) {
      const float* at = corner + std::size_t(k) * inner_step;
      for (int i = 0; i < have; ++i) to[i] = at[std::size_t(i) * across_step];
      for (int i = have; i < width; ++i) to[i] = 0;
    }
  }
}

// tile = the product of one strip of each.
TRAINER_VERSIONS void multiply(float* __restrict tile, const float* __restrict a, const float* __restrict b,
                               int inner) {
  static_assert(kTileColumns == 2 * kLanes);
  Vector sums[kTileRows][2] = {};
  for (int k = 0; k < inner; ++k, a += kTileRows, b += kTileColumns) {
    const Vector left = *reinterpret_cast<const Vector*>(b);
    const Vector right = *reinterpret_cast<const Vector*>(b + kLanes);
#pragma GCC unroll 6
    for (int row = 0; row < kTileRows; ++row) {
      sums[row][0] += a[row] * left;
      sums[row][1] += a[row] * right;
    }
  }
  std::memcpy(tile, sums, sizeof sums);
}

}  // namespace

void plain_gemm(bool transpose_a, bool transpose_b, int m, int n, int k, float alpha, const float* a, int lda,
                const float* b, int ldb, float beta, float* c, int ldc) {
  thread_local std::vector<float> a_strips(std::size_t(kBlockRows) * kBlockInner);
  thread_local std::vector<float> b_strips(std::size_t(kBlockColumns) * kBlockInner);
  const std::size_t a_row = transpose_a ? 1 : std::size_t(lda), a_inner = transpose_a ? std::size_t(lda) : 1;
  const std::size_t b_column = transpose_b ? std::size_t(ldb) : 1,
                    b_inner = transpose_b ? 1 : std::size_t(ldb);

  for (int row = 0; row < m; ++row) {
    float* line = c + std::size_t(row) * std::size_t(ldc);
    if (beta == 0) {
      std::fill_n(line, n, 0.0f);  // whatever was there, NaN too
    } else if (beta != 1) {
      for (int column = 0; column < n; ++column) line[column] *= beta;
    }
  }
  for (int inner = 0; inner < k; inner += kBlockInner) {
    const int inners = std::min(kBlockInner, k - inner);
    for (int column = 0; column < n; column += kBlockColumns) {
      const int columns = std::min(kBlockColumns, n - column);
      pack(b_strips.data(), b + std::size_t(inner) * b_inner + std::size_t(column) * b_column, b_column,
           b_inner, columns, inners, kTileColumns);
      for (int row = 0; row < m; row += kBlockRows) {
        const int rows = std::min(kBlockRows, m - row);
        pack(a_strips.data(), a + std::size_t(row) * a_row + std::size_t(inner) * a_inner, a_row, a_inner,
             rows, inners, kTileRows);
        for (int x = 0; x < columns; x += kTileColumns) {
          for (int y = 0; y < rows; y += kTileRows) {
            float tile[kTileRows * kTileColumns];
            multiply(tile, a_strips.data() + std::size_t(y) * std::size_t(inners),
                     b_strips.data() + std::size_t(x) * std::size_t(inners), inners);
            const int wide = std::min(kTileColumns, columns - x);
            for (int i = 0; i < std::min(kTileRows, rows - y); ++i) {
              float* line = c + std::size_t(row + y + i) * std::size_t(ldc) + column + x;
              for (int j = 0; j < wide; ++j) line[j] += alpha * tile[i * kTileColumns + j];
            }
          }
        }
      }
    }
  }
}

}  // namespace trainer
