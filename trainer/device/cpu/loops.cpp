#include "trainer/device/cpu/loops.hpp"

#if defined(__GNUC__) && !defined(__clang__)
// Neither changes a result; without them square roots and conditions keep a loop from being vectorised.
#pragma GCC optimize("no-math-errno", "no-trapping-math")
#endif

#include <algorithm>
#include <cmath>
#include <cstring>

#include "trainer/device/kernels.hpp"

namespace trainer::loops {
namespace {

constexpr std::size_t kLanes = 32;  // floats that are added side by side

// Four windows of a pooling beside each other; no compiler finds these by itself.
constexpr std::size_t kWindows = 4;
using Floats4 = float __attribute__((vector_size(16)));
using Ints4 = std::int32_t __attribute__((vector_size(16)));
using Bytes4 = std::uint8_t __attribute__((vector_size(4)));

template <class Vector>
inline __attribute__((always_inline)) Vector load(const void* from) {
  Vector vector;
  std::memcpy(&vector, from, sizeof vector);
  return vector;
}

}  // namespace

TRAINER_VERSIONS void add_bias(float* __restrict x, float bias, std::size_t count, bool relu) {
  if (relu) {
    for (std::size_t i = 0; i < count; ++i) {
      const float value = x[i] + bias;
      x[i] = value < 0 ? 0 : value;
    }
  } else {
    for (std::size_t i = 0; i < count; ++i) x[i] += bias;
  }
}

TRAINER_VERSIONS void add_biases(float* __restrict x, const float* __restrict bias, std::size_t count,
                                 bool relu) {
  if (relu) {
    for (std::size_t i = 0; i < count; ++i) {
      const float value = x[i] + bias[i];
      x[i] = value < 0 ? 0 : value;
    }
  } else {
    for (std::size_t i = 0; i < count; ++i) x[i] += bias[i];
  }
}

TRAINER_VERSIONS void sum_columns(float* __restrict out, const float* __restrict x, std::size_t rows,
                                  std::size_t columns, bool accumulate) {
  std::size_t begin = 0;
  for (; begin + kLanes <= columns; begin += kLanes) {
    float lanes[kLanes] = {};
    for (std::size_t row = 0; row < rows; ++row) {
      const float* from = x + row * columns + begin;
      for (std::size_t lane = 0; lane < kLanes; ++lane) lanes[lane] += from[lane];
    }
    for (std::size_t lane = 0; lane < kLanes; ++lane) {
      out[begin + lane] = accumulate ? out[begin + lane] + lanes[lane] : lanes[lane];
    }
  }
  for (; begin < columns; ++begin) {
    float sum = 0;
    for (std::size_t row = 0; row < rows; ++row) sum += x[row * columns + begin];
    out[begin] = accumulate ? out[begin] + sum : sum;
  }
}

TRAINER_VERSIONS float sum(const float* x, std::size_t count) {
  float lanes[kLanes] = {};
  std::size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (std::size_t lane = 0; lane < kLanes; ++lane) lanes[lane] += x[i + lane];
  }
  float rest = 0;
  for (; i < count; ++i) rest += x[i];
  for (std::size_t half = kLanes / 2; half > 0; half /= 2) {
    for (std::size_t lane = 0; lane < half; ++lane) lanes[lane] += lanes[lane + half];
  }
  return lanes[0] + rest;
}

TRAINER_VERSIONS void relu_backward(float* __restrict gradient, const float* __restrict activation,
                                    std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) gradient[i] = activation[i] <= 0 ? 0 : gradient[i];
}

TRAINER_VERSIONS void im2col(float* __restrict patches, const float* __restrict planes,
                             const ConvShape& shape) {
  constexpr std::size_t kPiece = 8;
  const auto width = std::size_t(shape.width);
  const auto kernel = std::size_t(shape.kernel);
  const auto out_width = std::size_t(shape.out_width());
  const auto out_height = std::size_t(shape.out_height());
  const auto batch = std::size_t(shape.batch);
  const std::size_t plane = std::size_t(shape.height) * width;
  float* to = patches;
  for (std::size_t row = 0; row < shape.patch(); ++row) {
    const std::size_t channel = row / (kernel * kernel);
    const float* corner = planes + channel * batch * plane + row / kernel % kernel * width + row % kernel;
    for (std::size_t image = 0; image < batch; ++image, corner += plane) {
      const float* from = corner;
      if (out_width < kPiece) {
        for (std::size_t y = 0; y < out_height; ++y, from += width, to += out_width) {
          for (std::size_t x = 0; x < out_width; ++x) to[x] = from[x];
        }
        continue;
      }
      // Whole pieces, the last of which lies partly on the one before: no call, no rest.
      const std::size_t last = out_width - kPiece;
      for (std::size_t y = 0; y < out_height; ++y, from += width, to += out_width) {
        for (std::size_t x = 0; x < last; x += kPiece) std::memcpy(to + x, from + x, kPiece * sizeof(float));
        std::memcpy(to + last, from + last, kPiece * sizeof(float));
      }
    }
  }
}

TRAINER_VERSIONS void col2im(float* __restrict planes, const float* __restrict patches,
                             const ConvShape& shape) {
  const auto width = std::size_t(shape.width);
  const auto kernel = std::size_t(shape.kernel);
  const auto out_width = std::size_t(shape.out_width());
  const auto out_height = std::size_t(shape.out_height());
  const auto batch = std::size_t(shape.batch);
  const std::size_t plane = std::size_t(shape.height) * width;
  std::fill_n(planes, std::size_t(shape.channels) * batch * plane, 0.0f);
  const float* from = patches;
  for (std::size_t row = 0; row < shape.patch(); ++row) {
    const std::size_t channel = row / (kernel * kernel);
    float* corner = planes + channel * batch * plane + row / kernel % kernel * width + row % kernel;
    for (std::size_t image = 0; image < batch; ++image, corner += plane) {
      float* to = corner;
      for (std::size_t y = 0; y < out_height; ++y, to += width, from += out_width) {
        std::size_t x = 0;
        for (; x + 8 <= out_width; x += 8) {
          for (std::size_t lane = 0; lane < 8; ++lane) to[x + lane] += from[x + lane];
        }
        for (; x < out_width; ++x) to[x] += from[x];
      }
    }
  }
}

TRAINER_VERSIONS void max_pool(float* __restrict out, std::uint8_t* __restrict chosen,
                               const float* __restrict in, std::size_t planes, std::size_t height,
                               std::size_t width) {
  const std::size_t out_width = width / 2;
  for (std::size_t plane = 0; plane < planes; ++plane) {
    const float* top = in + plane * height * width;
    for (std::size_t y = 0; y < height / 2; ++y, top += 2 * width) {
      const float* bottom = top + width;
      std::size_t x = 0;
      for (; x + kWindows <= out_width; x += kWindows) {
        const auto t0 = load<Floats4>(top + 2 * x), t1 = load<Floats4>(top + 2 * x + 4);
        const auto b0 = load<Floats4>(bottom + 2 * x), b1 = load<Floats4>(bottom + 2 * x + 4);
        const Floats4 corners[] = {
            __builtin_shufflevector(t0, t1, 0, 2, 4, 6), __builtin_shufflevector(t0, t1, 1, 3, 5, 7),
            __builtin_shufflevector(b0, b1, 0, 2, 4, 6), __builtin_shufflevector(b0, b1, 1, 3, 5, 7)};
        Floats4 best = corners[0];
        Ints4 which = {};
        for (int at = 1; at < 4; ++at) {
          const Ints4 better = corners[at] > best;
          best = better ? corners[at] : best;
          which = better ? Ints4{at, at, at, at} : which;
        }
        std::memcpy(out + x, &best, sizeof best);
        const auto narrow = __builtin_convertvector(which, Bytes4);
        std::memcpy(chosen + x, &narrow, sizeof narrow);
      }
      for (; x < out_width; ++x) {
        float best = top[2 * x];
        std::uint8_t which = 0;
        const auto offer = [&](float value, std::uint8_t at) {
          which = value > best ? at : which;
          best = value > best ? value : best;
        };
        offer(top[2 * x + 1], 1);
        offer(bottom[2 * x], 2);
        offer(bottom[2 * x + 1], 3);
        out[x] = best;
        chosen[x] = which;
      }
      out += out_width;
      chosen += out_width;
    }
  }
}

TRAINER_VERSIONS void max_pool_backward(float* __restrict in_gradient, const float* __restrict out_gradient,
                                        const std::uint8_t* __restrict chosen, std::size_t planes,
                                        std::size_t height, std::size_t width) {
  const std::size_t out_width = width / 2;
  if (height % 2 != 0 || width % 2 != 0) std::fill_n(in_gradient, planes * height * width, 0.0f);
  for (std::size_t plane = 0; plane < planes; ++plane) {
    float* top = in_gradient + plane * height * width;
    for (std::size_t y = 0; y < height / 2; ++y, top += 2 * width) {
      float* bottom = top + width;
      std::size_t x = 0;
      for (; x + kWindows <= out_width; x += kWindows) {
        const auto gradient = load<Floats4>(out_gradient + x);
        const auto which = __builtin_convertvector(load<Bytes4>(chosen + x), Ints4);
        const Floats4 zero = {};
        const Floats4 corners[] = {which == 0 ? gradient : zero, which == 1 ? gradient : zero,
                                   which == 2 ? gradient : zero, which == 3 ? gradient : zero};
        const Floats4 pieces[] = {__builtin_shufflevector(corners[0], corners[1], 0, 4, 1, 5),
                                  __builtin_shufflevector(corners[0], corners[1], 2, 6, 3, 7),
                                  __builtin_shufflevector(corners[2], corners[3], 0, 4, 1, 5),
                                  __builtin_shufflevector(corners[2], corners[3], 2, 6, 3, 7)};
        std::memcpy(top + 2 * x, pieces, 2 * sizeof(Floats4));
        std::memcpy(bottom + 2 * x, pieces + 2, 2 * sizeof(Floats4));
      }
      for (; x < out_width; ++x) {
        const float gradient = out_gradient[x];
        const int which = chosen[x];
        top[2 * x] = which == 0 ? gradient : 0;
        top[2 * x + 1] = which == 1 ? gradient : 0;
        bottom[2 * x] = which == 2 ? gradient : 0;
        bottom[2 * x + 1] = which == 3 ? gradient : 0;
      }
      out_gradient += out_width;
      chosen += out_width;
    }
  }
}

TRAINER_VERSIONS void add(float* __restrict x, const float* __restrict y, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) x[i] += y[i];
}

TRAINER_VERSIONS void scale(float* __restrict x, float factor, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) x[i] *= factor;
}

TRAINER_VERSIONS double sum_of_squares(const float* x, std::size_t count) {
  double lanes[kLanes] = {};
  std::size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (std::size_t lane = 0; lane < kLanes; ++lane) {
      const double value = x[i + lane];
      lanes[lane] += value * value;
    }
  }
  double sum = 0;
  for (; i < count; ++i) sum += double(x[i]) * double(x[i]);
  for (double lane : lanes) sum += lane;
  return sum;
}

TRAINER_VERSIONS void sgd(float* __restrict parameters, const float* __restrict gradients,
                          float* __restrict velocity, std::size_t count, const SgdStep& step) {
  const kernels::Sgd each{parameters, gradients, velocity, step};
  const float rate = step.rate, decay = step.weight_decay, momentum = step.momentum;
  if (momentum == 0 && decay == 0) {
    for (std::size_t i = 0; i < count; ++i) parameters[i] -= rate * gradients[i];
  } else if (momentum != 0 && decay == 0 && !step.first) {
    for (std::size_t i = 0; i < count; ++i) {
      velocity[i] = momentum * velocity[i] + gradients[i];
      parameters[i] -= rate * velocity[i];
    }
  } else if (momentum != 0 && !step.first) {
    for (std::size_t i = 0; i < count; ++i) {
      velocity[i] = momentum * velocity[i] + (gradients[i] + decay * parameters[i]);
      parameters[i] -= rate * velocity[i];
    }
  } else {
    for (std::size_t i = 0; i < count; ++i) each(i);
  }
}

TRAINER_VERSIONS void adamw(float* __restrict parameters, const float* __restrict gradients,
                            float* __restrict mean, float* __restrict square, std::size_t count,
                            const AdamStep& step) {
  const auto each = kernels::make_adamw(parameters, gradients, mean, square, step);
  const float keep = each.keep, rate = each.rate, epsilon = each.epsilon;
  const float beta1 = each.beta1, beta2 = each.beta2, square_root = each.square_root;
  for (std::size_t i = 0; i < count; ++i) {
    const float gradient = gradients[i];
    mean[i] += (gradient - mean[i]) * (1 - beta1);
    square[i] = square[i] * beta2 + (1 - beta2) * gradient * gradient;
    const float spread = std::sqrt(square[i]) / square_root + epsilon;
    parameters[i] = parameters[i] * keep - rate * (mean[i] / spread);
  }
}

}  // namespace trainer::loops
