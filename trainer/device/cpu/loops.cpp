#include "trainer/device/cpu/loops.hpp"

#include <algorithm>
#include <cmath>

// A version of a function for each generation of processors. Sanitizers start before the loader can choose.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_ADDRESS__) && \
    !defined(__SANITIZE_THREAD__)
#define FOR_EACH_PROCESSOR __attribute__((target_clones("arch=skylake-avx512", "arch=haswell", "default")))
#else
#define FOR_EACH_PROCESSOR
#endif

namespace trainer::loops {

FOR_EACH_PROCESSOR void add_row(float* __restrict x, const float* __restrict b, std::size_t count,
                                bool relu) {
  if (relu) {
    for (std::size_t i = 0; i < count; ++i) {
      auto value = x[i] + b[i];
      x[i] = value > 0 ? value : 0;
    }
  } else {
    for (std::size_t i = 0; i < count; ++i) x[i] += b[i];
  }
}

FOR_EACH_PROCESSOR void add_constant(float* x, float b, std::size_t count, bool relu) {
  if (relu) {
    for (std::size_t i = 0; i < count; ++i) {
      auto value = x[i] + b;
      x[i] = value > 0 ? value : 0;
    }
  } else {
    for (std::size_t i = 0; i < count; ++i) x[i] += b;
  }
}

FOR_EACH_PROCESSOR void add(float* __restrict x, const float* __restrict y, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) x[i] += y[i];
}

FOR_EACH_PROCESSOR void scale(float* x, float factor, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) x[i] *= factor;
}

FOR_EACH_PROCESSOR void relu_backward(float* __restrict gradient, const float* __restrict activation,
                                      std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) gradient[i] = activation[i] > 0 ? gradient[i] : 0;
}

FOR_EACH_PROCESSOR float sum(const float* x, std::size_t count) {
  constexpr std::size_t kParts = 16;
  float parts[kParts] = {};
  std::size_t i = 0;
  for (; i + kParts <= count; i += kParts) {
    for (std::size_t part = 0; part < kParts; ++part) parts[part] += x[i + part];
  }
  for (std::size_t part = 0; i < count; ++i, ++part) parts[part] += x[i];
  for (std::size_t half = kParts / 2; half > 0; half /= 2) {
    for (std::size_t part = 0; part < half; ++part) parts[part] += parts[part + half];
  }
  return parts[0];
}

FOR_EACH_PROCESSOR double sum_of_squares(const float* x, std::size_t count) {
  constexpr std::size_t kParts = 8;
  double parts[kParts] = {};
  std::size_t i = 0;
  for (; i + kParts <= count; i += kParts) {
    for (std::size_t part = 0; part < kParts; ++part)
      parts[part] += double(x[i + part]) * double(x[i + part]);
  }
  for (std::size_t part = 0; i < count; ++i, ++part) parts[part] += double(x[i]) * double(x[i]);
  double total = 0;
  for (auto part : parts) total += part;
  return total;
}

FOR_EACH_PROCESSOR void pool_row(float* __restrict out, std::uint8_t* __restrict chosen,
                                 const float* __restrict upper, const float* __restrict lower,
                                 std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    auto a = upper[2 * i], b = upper[2 * i + 1], c = lower[2 * i], d = lower[2 * i + 1];
    // The first of equals; a value that is no number passes on, as in PyTorch.
    auto top = b > a || b != b ? b : a;
    auto bottom = d > c || d != d ? d : c;
    std::uint8_t top_at = b > a || b != b ? 1 : 0;
    std::uint8_t bottom_at = d > c || d != d ? 3 : 2;
    auto lower_wins = bottom > top || bottom != bottom;
    out[i] = lower_wins ? bottom : top;
    chosen[i] = lower_wins ? bottom_at : top_at;
  }
}

FOR_EACH_PROCESSOR void pool_row_backward(float* __restrict upper, float* __restrict lower,
                                          const float* __restrict gradient,
                                          const std::uint8_t* __restrict chosen, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    auto value = gradient[i];
    auto at = chosen[i];
    upper[2 * i] = at == 0 ? value : 0;
    upper[2 * i + 1] = at == 1 ? value : 0;
    lower[2 * i] = at == 2 ? value : 0;
    lower[2 * i + 1] = at == 3 ? value : 0;
  }
}

FOR_EACH_PROCESSOR void sgd(float* __restrict parameters, const float* __restrict gradients,
                            float* __restrict velocity, std::size_t count, const SgdStep& step) {
  const auto rate = step.rate, momentum = step.momentum, decay = step.weight_decay;
  if (momentum == 0) {
    for (std::size_t i = 0; i < count; ++i) {
      parameters[i] -= rate * (gradients[i] + decay * parameters[i]);
    }
  } else if (step.first) {
    for (std::size_t i = 0; i < count; ++i) {
      velocity[i] = gradients[i] + decay * parameters[i];
      parameters[i] -= rate * velocity[i];
    }
  } else {
    for (std::size_t i = 0; i < count; ++i) {
      velocity[i] = momentum * velocity[i] + (gradients[i] + decay * parameters[i]);
      parameters[i] -= rate * velocity[i];
    }
  }
}

FOR_EACH_PROCESSOR void adamw(float* __restrict parameters, const float* __restrict gradients,
                              float* __restrict mean, float* __restrict square, std::size_t count,
                              const AdamStep& step) {
  const auto beta1 = step.beta1, beta2 = step.beta2, epsilon = step.epsilon;
  const auto correction1 = 1 - std::pow(double(beta1), double(step.step));
  const auto correction2 = 1 - std::pow(double(beta2), double(step.step));
  const auto size = float(double(step.rate) / correction1);
  const auto root = float(std::sqrt(correction2));
  const auto keep = 1 - step.rate * step.weight_decay;
  for (std::size_t i = 0; i < count; ++i) {
    mean[i] = beta1 * mean[i] + (1 - beta1) * gradients[i];
    square[i] = beta2 * square[i] + (1 - beta2) * gradients[i] * gradients[i];
    parameters[i] = parameters[i] * keep - size * mean[i] / (std::sqrt(square[i]) / root + epsilon);
  }
}

}  // namespace trainer::loops
