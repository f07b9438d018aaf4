// The arithmetic of a device, operation by operation, as functors: what is done at one index. No order
// between the indices is assumed, and no two of them write to one place. A GPU gives each index a thread, a
// CPU runs a loop; so what the CUDA module computes can be tested where there is no GPU. Each is an operation
// of device.hpp, or a stage of one.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>

#include "trainer/device/device.hpp"

#ifdef __CUDACC__
#define TRAINER_ANYWHERE __host__ __device__
#else
#define TRAINER_ANYWHERE
#endif

namespace trainer::kernels {

struct AddBias {
  float* x;
  const float* bias;
  std::size_t columns;
  bool by_row;
  bool relu;
  TRAINER_ANYWHERE void operator()(std::size_t i) const {
    const float value = x[i] + bias[by_row ? i / columns : i % columns];
    x[i] = relu && value < 0 ? 0 : value;  // NaN stays
  }
};

// Sums of `length` floats each, `step` apart; those of output o start at o * stride.
struct Sum {
  float* out;
  const float* x;
  std::size_t length;
  std::size_t stride;
  std::size_t step;
  bool accumulate;
  TRAINER_ANYWHERE void operator()(std::size_t o) const {
    float sum = 0;
    for (std::size_t j = 0; j < length; ++j) sum += x[o * stride + j * step];
    out[o] = accumulate ? out[o] + sum : sum;
  }
};

// The same cut into `parts` partial sums, [output][part], of every parts-th float. Neighbouring indices read
// neighbouring floats, along the sum or across the sums.
struct PartialSum {
  float* out;
  const float* x;
  std::size_t outputs;
  std::size_t length;
  std::size_t stride;
  std::size_t step;
  std::size_t parts;
  TRAINER_ANYWHERE void operator()(std::size_t i) const {
    const bool along = step == 1;
    const std::size_t o = along ? i / parts : i % outputs;
    const std::size_t part = along ? i % parts : i / outputs;
    float sum = 0;
    for (std::size_t j = part; j < length; j += parts) sum += x[o * stride + j * step];
    out[o * parts + part] = sum;
  }
};

struct ReluBackward {
  float* gradient;
  const float* activation;
  TRAINER_ANYWHERE void operator()(std::size_t i) const {
    if (activation[i] <= 0) gradient[i] = 0;
  }
};

struct Im2Col {  // over the patches
  float* patches;
  const float* planes;
  ConvShape shape;
  TRAINER_ANYWHERE void operator()(std::size_t i) const {
    const std::size_t width = std::size_t(shape.width - shape.kernel + 1);
    const std::size_t height = std::size_t(shape.height - shape.kernel + 1);
    const std::size_t kernel = std::size_t(shape.kernel);
    const std::size_t x = i % width;
    const std::size_t y = i / width % height;
    const std::size_t image = i / (width * height) % std::size_t(shape.batch);
    const std::size_t row = i / (width * height * std::size_t(shape.batch));
    const std::size_t channel = row / (kernel * kernel);
    const std::size_t in_y = y + row / kernel % kernel;
    const std::size_t in_x = x + row % kernel;
    const std::size_t plane = channel * std::size_t(shape.batch) + image;
    patches[i] = planes[(plane * std::size_t(shape.height) + in_y) * std::size_t(shape.width) + in_x];
  }
};

struct Col2Im {  // over the planes: each pixel collects what the patches made of it
  float* planes;
  const float* patches;
  ConvShape shape;
  TRAINER_ANYWHERE void operator()(std::size_t i) const {
    const int x = int(i % std::size_t(shape.width));
    const int y = int(i / std::size_t(shape.width) % std::size_t(shape.height));
    const std::size_t plane = i / (std::size_t(shape.width) * std::size_t(shape.height));
    const std::size_t image = plane % std::size_t(shape.batch);
    const std::size_t channel = plane / std::size_t(shape.batch);
    const int width = shape.width - shape.kernel + 1;
    const int height = shape.height - shape.kernel + 1;
    float sum = 0;
    for (int ky = 0; ky < shape.kernel; ++ky) {
      if (y - ky < 0 || y - ky >= height) continue;
      for (int kx = 0; kx < shape.kernel; ++kx) {
        if (x - kx < 0 || x - kx >= width) continue;
        const std::size_t row =
            (channel * std::size_t(shape.kernel) + std::size_t(ky)) * std::size_t(shape.kernel) +
            std::size_t(kx);
        sum +=
            patches[((row * std::size_t(shape.batch) + image) * std::size_t(height) + std::size_t(y - ky)) *
                        std::size_t(width) +
                    std::size_t(x - kx)];
      }
    }
    planes[i] = sum;
  }
};

struct MaxPool {  // over the outputs
  float* out;
  std::uint8_t* chosen;
  const float* in;
  std::size_t height;
  std::size_t width;
  TRAINER_ANYWHERE void operator()(std::size_t i) const {
    const std::size_t columns = width / 2;
    const std::size_t rows = height / 2;
    const std::size_t plane = i / (columns * rows);
    const float* corner = in + (plane * height + 2 * (i / columns % rows)) * width + 2 * (i % columns);
    std::uint8_t best = 0;
    for (std::uint8_t at = 1; at < 4; ++at) {
      if (corner[at / 2 * width + at % 2] > corner[best / 2 * width + best % 2]) best = at;
    }
    out[i] = corner[best / 2 * width + best % 2];
    chosen[i] = best;
  }
};

struct MaxPoolBackward {  // over the inputs
  float* in_gradient;
  const float* out_gradient;
  const std::uint8_t* chosen;
  std::size_t height;
  std::size_t width;
  TRAINER_ANYWHERE void operator()(std::size_t i) const {
    const std::size_t x = i % width;
    const std::size_t y = i / width % height;
    const std::size_t plane = i / (width * height);
    float gradient = 0;
    if (x / 2 < width / 2 && y / 2 < height / 2) {
      const std::size_t window = (plane * (height / 2) + y / 2) * (width / 2) + x / 2;
      if (chosen[window] == y % 2 * 2 + x % 2) gradient = out_gradient[window];
    }
    in_gradient[i] = gradient;
  }
};

// [outer][inner][pixel] to [inner][outer][pixel], over the target.
struct Exchange {
  float* to;
  const float* from;
  std::size_t outer;  // of the source
  std::size_t inner;
  std::size_t pixels;
  TRAINER_ANYWHERE void operator()(std::size_t i) const {
    const std::size_t o = i / pixels % outer;
    const std::size_t n = i / (pixels * outer);
    to[i] = from[(o * inner + n) * pixels + i % pixels];
  }
};

// A row's loss and the first largest logit: what training and evaluation have in common.
struct RowLoss {
  float largest = 0;
  float sum = 0;  // of exp(logit - largest)
  int first = 0;
  TRAINER_ANYWHERE RowLoss(const float* logits, int classes) : largest(logits[0]) {
    for (int c = 1; c < classes; ++c) {
      if (logits[c] > largest) {
        largest = logits[c];
        first = c;
      }
    }
    for (int c = 0; c < classes; ++c) sum += expf(logits[c] - largest);
  }
  TRAINER_ANYWHERE float of(float logit) const { return logf(sum) - (logit - largest); }
};

struct CrossEntropy {  // over the rows
  float* gradient;
  float* losses;
  const float* logits;
  const std::int32_t* labels;
  int classes;
  float scale;
  TRAINER_ANYWHERE void operator()(std::size_t row) const { losses[row] = loss_of(row) * scale; }
  // Writes the row's gradient, too.
  TRAINER_ANYWHERE float loss_of(std::size_t row) const {
    const float* in = logits + row * std::size_t(classes);
    float* out = gradient + row * std::size_t(classes);
    const RowLoss loss(in, classes);
    for (int c = 0; c < classes; ++c) {
      out[c] = (expf(in[c] - loss.largest) / loss.sum - (c == labels[row] ? 1.0f : 0.0f)) * scale;
    }
    return loss.of(in[labels[row]]);
  }
};

struct Evaluate {  // over the rows: [row] the loss, [rows + row] 1 if right
  float* out;
  const float* logits;
  const std::int32_t* labels;
  std::size_t rows;
  int classes;
  TRAINER_ANYWHERE void operator()(std::size_t row) const {
    const float* in = logits + row * std::size_t(classes);
    const RowLoss loss(in, classes);
    out[row] = loss.of(in[labels[row]]);
    out[rows + row] = loss.first == labels[row] ? 1 : 0;
  }
};

struct AddToTally {  // once
  Tally* tally;
  const float* rows_of;  // as Evaluate leaves them
  std::size_t rows;
  TRAINER_ANYWHERE void operator()(std::size_t) const {
    double loss = 0;
    std::int64_t right = 0;
    for (std::size_t row = 0; row < rows; ++row) {
      loss += double(rows_of[row]);
      right += rows_of[rows + row] > 0;
    }
    tally->loss += loss;
    tally->right += right;
    tally->images += std::int64_t(rows);
  }
};

struct Fill {
  float* x;
  float value;
  TRAINER_ANYWHERE void operator()(std::size_t i) const { x[i] = value; }
};

struct Add {
  float* x;
  const float* y;
  TRAINER_ANYWHERE void operator()(std::size_t i) const { x[i] += y[i]; }
};

struct Scale {
  float* x;
  float factor;
  TRAINER_ANYWHERE void operator()(std::size_t i) const { x[i] *= factor; }
};

struct SquaredParts {  // over the parts: the sum of the squares of every parts-th float
  double* out;
  const float* x;
  std::size_t count;
  std::size_t parts;
  TRAINER_ANYWHERE void operator()(std::size_t part) const {
    double sum = 0;
    for (std::size_t i = part; i < count; i += parts) sum += double(x[i]) * double(x[i]);
    out[part] = sum;
  }
};

struct ClipFactor {  // once: the norm, and in parts[0] by what to scale
  double* parts;
  std::size_t count;
  float limit;
  float* norm;
  TRAINER_ANYWHERE void operator()(std::size_t) const {
    double sum = 0;
    for (std::size_t i = 0; i < count; ++i) sum += parts[i];
    *norm = float(sqrt(sum));
    const float factor = limit / (*norm + 1e-6f);
    parts[0] = factor >= 1 ? 1.0 : double(factor);  // NaN stays
  }
};

struct ScaleBy {
  float* x;
  const double* factor;
  TRAINER_ANYWHERE void operator()(std::size_t i) const { x[i] *= float(*factor); }
};

struct Sgd {
  float* parameters;
  const float* gradients;
  float* velocity;
  SgdStep step;
  TRAINER_ANYWHERE void operator()(std::size_t i) const {
    float change = gradients[i];
    if (step.weight_decay != 0) change += step.weight_decay * parameters[i];
    if (step.momentum != 0) {
      if (!step.first) change = step.momentum * velocity[i] + change;
      velocity[i] = change;
    }
    parameters[i] -= step.rate * change;
  }
};

struct AdamW {
  float* parameters;
  const float* gradients;
  float* mean;
  float* square;
  float keep;  // 1 - rate * weight decay
  float beta1;
  float beta2;
  float rate;         // with the mean's bias correction
  float square_root;  // of the square's bias correction
  float epsilon;
  TRAINER_ANYWHERE void operator()(std::size_t i) const {
    const float gradient = gradients[i];
    mean[i] += (gradient - mean[i]) * (1 - beta1);
    square[i] = square[i] * beta2 + (1 - beta2) * gradient * gradient;
    const float spread = sqrtf(square[i]) / square_root + epsilon;
    parameters[i] = parameters[i] * keep - rate * (mean[i] / spread);
  }
};

inline AdamW make_adamw(float* parameters, const float* gradients, float* mean, float* square,
                        const AdamStep& step) {
  const double correction1 = 1 - std::pow(double(step.beta1), double(step.step));
  const double correction2 = 1 - std::pow(double(step.beta2), double(step.step));
  return {parameters,
          gradients,
          mean,
          square,
          1 - step.rate * step.weight_decay,
          step.beta1,
          step.beta2,
          float(double(step.rate) / correction1),
          float(std::sqrt(correction2)),
          step.epsilon};
}

}  // namespace trainer::kernels
