// The CPU's inner loops, written so that the compiler makes vector code of them for several generations of
// processors and picks at run time. The order of additions depends on the shape alone, never on addresses.
#pragma once

#include <cstddef>
#include <cstdint>

#include "trainer/device/device.hpp"

namespace trainer::loops {

// x[i] += b[i], or + b for all; then max(0, x) if `relu`.
void add_row(float* x, const float* b, std::size_t count, bool relu);
void add_constant(float* x, float b, std::size_t count, bool relu);
void add(float* x, const float* y, std::size_t count);
void scale(float* x, float factor, std::size_t count);
void relu_backward(float* gradient, const float* activation, std::size_t count);
float sum(const float* x, std::size_t count);  // in 16 interleaved parts
double sum_of_squares(const float* x, std::size_t count);
// One row of the output of 2 x 2 windows over two rows of the input.
void pool_row(float* out, std::uint8_t* chosen, const float* upper, const float* lower, std::size_t count);
void pool_row_backward(float* upper, float* lower, const float* gradient, const std::uint8_t* chosen,
                       std::size_t count);
void sgd(float* parameters, const float* gradients, float* velocity, std::size_t count, const SgdStep& step);
void adamw(float* parameters, const float* gradients, float* mean, float* square, std::size_t count,
           const AdamStep& step);

}  // namespace trainer::loops
