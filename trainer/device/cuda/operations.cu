// The arithmetic of CudaDevice: each operation is one kernel, or two where sums are cut into parts.
#include <algorithm>
#include <cmath>

#include "trainer/device/cuda/cuda_device.hpp"
#include "trainer/device/cuda/launch.cuh"
#include "trainer/device/kernels.hpp"

namespace trainer::cuda {
namespace {

constexpr std::size_t kLongSum = 512;  // above, one thread for a sum takes too long
constexpr std::size_t kSquareParts = 1024;

std::size_t pixels_of(const ConvShape& shape) {
  return std::size_t(shape.channels) * std::size_t(shape.batch) * std::size_t(shape.height) *
         std::size_t(shape.width);
}

}  // namespace

template <class F>
void CudaDevice::each(std::size_t count, F functor) {
  use();
  keep(launch(lane_.get(), functor, count), "cudaLaunchKernel");
}

void CudaDevice::sum(float* out, const float* x, std::size_t outputs, std::size_t length, std::size_t stride,
                     std::size_t step, bool accumulate) {
  if (length <= kLongSum) return each(outputs, kernels::Sum{out, x, length, stride, step, accumulate});
  // Both parts about equally long.
  const auto parts = std::size_t(std::ceil(std::sqrt(double(length))));
  float* partial = scratch(outputs * parts);
  if (!partial) return;
  each(outputs * parts, kernels::PartialSum{partial, x, outputs, length, stride, step, parts});
  each(outputs, kernels::Sum{out, partial, parts, parts, 1, accumulate});
}

void CudaDevice::add_bias_to_columns(float* x, const float* bias, std::size_t rows, std::size_t columns,
                                     bool relu) {
  each(rows * columns, kernels::AddBias{x, bias, columns, /*by_row=*/false, relu});
}

void CudaDevice::add_bias_to_rows(float* x, const float* bias, std::size_t rows, std::size_t columns,
                                  bool relu) {
  each(rows * columns, kernels::AddBias{x, bias, columns, /*by_row=*/true, relu});
}

void CudaDevice::sum_columns(float* out, const float* x, std::size_t rows, std::size_t columns,
                             bool accumulate) {
  sum(out, x, columns, rows, 1, columns, accumulate);
}

void CudaDevice::sum_rows(float* out, const float* x, std::size_t rows, std::size_t columns,
                          bool accumulate) {
  sum(out, x, rows, columns, columns, 1, accumulate);
}

void CudaDevice::relu_backward(float* gradient, const float* activation, std::size_t count) {
  each(count, kernels::ReluBackward{gradient, activation});
}

void CudaDevice::im2col(float* patches, const float* planes, const ConvShape& shape) {
  each(shape.patch() * shape.positions(), kernels::Im2Col{patches, planes, shape});
}

void CudaDevice::col2im(float* planes, const float* patches, const ConvShape& shape) {
  each(pixels_of(shape), kernels::Col2Im{planes, patches, shape});
}

void CudaDevice::max_pool(float* out, std::uint8_t* chosen, const float* in, std::size_t planes, int height,
                          int width) {
  each(planes * std::size_t(height / 2) * std::size_t(width / 2),
       kernels::MaxPool{out, chosen, in, std::size_t(height), std::size_t(width)});
}

void CudaDevice::max_pool_backward(float* in_gradient, const float* out_gradient, const std::uint8_t* chosen,
                                   std::size_t planes, int height, int width) {
  each(planes * std::size_t(height) * std::size_t(width),
       kernels::MaxPoolBackward{in_gradient, out_gradient, chosen, std::size_t(height), std::size_t(width)});
}

void CudaDevice::planes_to_rows(float* rows, const float* planes, int channels, int batch,
                                std::size_t pixels) {
  each(std::size_t(channels) * std::size_t(batch) * pixels,
       kernels::Exchange{rows, planes, std::size_t(channels), std::size_t(batch), pixels});
}

void CudaDevice::rows_to_planes(float* planes, const float* rows, int channels, int batch,
                                std::size_t pixels) {
  each(std::size_t(channels) * std::size_t(batch) * pixels,
       kernels::Exchange{planes, rows, std::size_t(batch), std::size_t(channels), pixels});
}

void CudaDevice::cross_entropy(float* gradient, float* loss, const float* logits, const std::int32_t* labels,
                               std::size_t rows, int classes, float scale) {
  // Behind what sum() takes of the scratch memory for itself.
  const auto taken = std::size_t(std::ceil(std::sqrt(double(rows))));
  float* all = scratch(taken + rows);
  if (!all) return;
  each(rows, kernels::CrossEntropy{gradient, all + taken, logits, labels, classes, scale});
  sum(loss, all + taken, 1, rows, rows, 1, /*accumulate=*/true);
}

void CudaDevice::evaluate(Tally* tally, const float* logits, const std::int32_t* labels, std::size_t rows,
                          int classes) {
  float* all = scratch(2 * rows);
  if (!all) return;
  each(rows, kernels::Evaluate{all, logits, labels, rows, classes});
  each(1, kernels::AddToTally{tally, all, rows});
}

void CudaDevice::fill(float* x, float value, std::size_t count) { each(count, kernels::Fill{x, value}); }
void CudaDevice::add(float* x, const float* y, std::size_t count) { each(count, kernels::Add{x, y}); }
void CudaDevice::scale(float* x, float factor, std::size_t count) { each(count, kernels::Scale{x, factor}); }

void CudaDevice::clip(float* x, std::size_t count, float limit, float* norm) {
  auto* parts = reinterpret_cast<double*>(scratch(kSquareParts * sizeof(double) / sizeof(float)));
  if (!parts) return;
  each(kSquareParts, kernels::SquaredParts{parts, x, count, kSquareParts});
  each(1, kernels::ClipFactor{parts, kSquareParts, limit, norm});
  each(count, kernels::ScaleBy{x, parts});
}

void CudaDevice::sgd(float* parameters, const float* gradients, float* velocity, std::size_t count,
                     const SgdStep& step) {
  each(count, kernels::Sgd{parameters, gradients, velocity, step});
}

void CudaDevice::adamw(float* parameters, const float* gradients, float* mean, float* square,
                       std::size_t count, const AdamStep& step) {
  each(count, kernels::make_adamw(parameters, gradients, mean, square, step));
}

}  // namespace trainer::cuda
