#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "../random_floats.hpp"
#include "trainer/device/cpu/cpu_device.hpp"

namespace trainer {
namespace {

struct Product {
  int m, n, k;
};

// Against sums in double. Rows are longer than needed, and what lies between must stay as it was.
void expect_right(Gemm gemm, const Product& size, bool transpose_a, bool transpose_b, float alpha,
                  float beta) {
  const auto [m, n, k] = size;
  const int lda = (transpose_a ? m : k) + 3, ldb = (transpose_b ? k : n) + 1, ldc = n + 2;
  const Floats a = random_floats(std::size_t(lda * (transpose_a ? k : m)), 1);
  const Floats b = random_floats(std::size_t(ldb * (transpose_b ? n : k)), 2);
  const Floats before = random_floats(std::size_t(ldc * m), 3);
  Floats c = before;
  gemm(transpose_a, transpose_b, m, n, k, alpha, a.data(), lda, b.data(), ldb, beta, c.data(), ldc);
  for (int row = 0; row < m; ++row) {
    for (int column = 0; column < ldc; ++column) {
      const auto at = std::size_t(row * ldc + column);
      if (column >= n) {
        ASSERT_EQ(c[at], before[at]);
        continue;
      }
      double sum = 0;
      for (int i = 0; i < k; ++i) {
        sum += double(a[std::size_t(transpose_a ? i * lda + row : row * lda + i)]) *
               double(b[std::size_t(transpose_b ? column * ldb + i : i * ldb + column)]);
      }
      const double expected = double(alpha) * sum + double(beta) * double(before[at]);
      ASSERT_NEAR(double(c[at]), expected, 1e-5 * std::sqrt(double(k)) + 1e-6)
          << m << "x" << n << "x" << k << " at " << row << ", " << column;
    }
  }
}

TEST(PlainGemm, IsRightForAllTransposesAndOddSizes) {
  for (const Product& size : {Product{1, 1, 1}, Product{6, 16, 256}, Product{7, 17, 257}, Product{13, 5, 3},
                              Product{97, 33, 40}, Product{2, 600, 9}, Product{20, 10, 300}}) {
    for (bool transpose_a : {false, true}) {
      for (bool transpose_b : {false, true}) {
        for (auto [alpha, beta] : {std::pair{1.0f, 0.0f}, {1.0f, 1.0f}, {0.5f, -2.0f}}) {
          expect_right(plain_gemm, size, transpose_a, transpose_b, alpha, beta);
        }
      }
    }
  }
}

TEST(PlainGemm, DoesNotReadWhatItReplaces) {
  const Floats a = {2}, b = {3};
  Floats c = {std::numeric_limits<float>::quiet_NaN()};
  plain_gemm(false, false, 1, 1, 1, 1, a.data(), 1, b.data(), 1, 0, c.data(), 1);
  EXPECT_EQ(c[0], 6);
}

// Equal runs must give equal bits, and memory lies elsewhere in each.
void expect_same_bits_anywhere(Gemm gemm, const Product& size) {
  const auto [m, n, k] = size;
  const Floats a = random_floats(std::size_t(m * k), 4), b = random_floats(std::size_t(k * n), 5);
  Floats expected(std::size_t(m * n));
  gemm(false, true, m, n, k, 1, a.data(), k, b.data(), k, 0, expected.data(), n);
  for (std::size_t shift = 1; shift < 17; ++shift) {
    Floats moved_a(a.size() + shift), moved_b(b.size() + shift), c(expected.size() + shift);
    std::copy(a.begin(), a.end(), moved_a.begin() + std::ptrdiff_t(shift));
    std::copy(b.begin(), b.end(), moved_b.begin() + std::ptrdiff_t(shift));
    gemm(false, true, m, n, k, 1, moved_a.data() + shift, k, moved_b.data() + shift, k, 0, c.data() + shift,
         n);
    c.erase(c.begin(), c.begin() + std::ptrdiff_t(shift));
    EXPECT_EQ(c, expected);
  }
}

TEST(PlainGemm, GivesTheSameBitsWhereverTheMemoryLies) {
  expect_same_bits_anywhere(plain_gemm, {11, 29, 300});
}

TEST(OpenBlasGemm, GivesTheSameBitsWhereverTheMemoryLies) {
  const auto module = host_module();
  if (!module) GTEST_SKIP() << module.error().text;
  for (const Product& size : {Product{11, 29, 300}, Product{64, 10, 512}, Product{32, 512, 784}}) {
    expect_same_bits_anywhere((*module)->gemm, size);
  }
}

TEST(OpenBlasGemm, AgreesWithThePlainOne) {
  const auto module = host_module();
  if (!module) GTEST_SKIP() << module.error().text;
  for (const Product& size : {Product{64, 512, 784}, Product{64, 10, 512}, Product{10, 512, 64},
                              Product{20, 1152, 25}, Product{50, 500, 128}, Product{3, 5, 7}}) {
    for (bool transpose_a : {false, true}) {
      for (bool transpose_b : {false, true}) {
        const auto [m, n, k] = size;
        const Floats a = random_floats(std::size_t(m * k), 6), b = random_floats(std::size_t(k * n), 7);
        Floats one = random_floats(std::size_t(m * n), 8), other = one;
        const int lda = transpose_a ? m : k, ldb = transpose_b ? k : n;
        plain_gemm(transpose_a, transpose_b, m, n, k, 1, a.data(), lda, b.data(), ldb, 1, one.data(), n);
        (*module)->gemm(transpose_a, transpose_b, m, n, k, 1, a.data(), lda, b.data(), ldb, 1, other.data(),
                        n);
        for (std::size_t i = 0; i < one.size(); ++i) ASSERT_NEAR(one[i], other[i], 1e-4f) << "at " << i;
      }
    }
  }
}

}  // namespace
}  // namespace trainer
