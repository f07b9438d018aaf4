// The loops of CpuDevice, each compiled for several generations of processors; the one that fits is chosen
// when the program starts. Sums are added in an order that depends on the shape alone, never on where the
// memory lies. What an operation does is told in device.hpp; here a length of 0 is allowed everywhere.
#pragma once

#include <cstddef>
#include <cstdint>

#include "trainer/device/device.hpp"

// ifunc resolvers run before a sanitizer is set up, so with one there is one version only.
#if defined(__GNUC__) && !defined(__clang__) && defined(__x86_64__) && !defined(__SANITIZE_ADDRESS__) && \
    !defined(__SANITIZE_THREAD__) && !defined(TRAINER_ONE_VERSION)
#define TRAINER_VERSIONS __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define TRAINER_VERSIONS
#endif

namespace trainer::loops {

void add_bias(float* x, float bias, std::size_t count, bool relu);           // one for all
void add_biases(float* x, const float* bias, std::size_t count, bool relu);  // one each
void sum_columns(float* out, const float* x, std::size_t rows, std::size_t columns, bool accumulate);
float sum(const float* x, std::size_t count);
void relu_backward(float* gradient, const float* activation, std::size_t count);
void im2col(float* patches, const float* planes, const ConvShape& shape);
void col2im(float* planes, const float* patches, const ConvShape& shape);
void max_pool(float* out, std::uint8_t* chosen, const float* in, std::size_t planes, std::size_t height,
              std::size_t width);
void max_pool_backward(float* in_gradient, const float* out_gradient, const std::uint8_t* chosen,
                       std::size_t planes, std::size_t height, std::size_t width);
void add(float* x, const float* y, std::size_t count);
void scale(float* x, float factor, std::size_t count);
double sum_of_squares(const float* x, std::size_t count);
void sgd(float* parameters, const float* gradients, float* velocity, std::size_t count, const SgdStep& step);
void adamw(float* parameters, const float* gradients, float* mean, float* square, std::size_t count,
           const AdamStep& step);

}  // namespace trainer::loops
