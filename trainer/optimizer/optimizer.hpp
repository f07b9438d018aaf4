// SGD with momentum, and AdamW, over the flat parameters of a network; PyTorch's formulas and defaults, but
// no weight decay on biases.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trainer/device/device.hpp"
#include "trainer/model/spec.hpp"

namespace trainer {

struct OptimizerOptions {
  std::string name = "sgd";  // or "adamw"
  float momentum = 0;        // sgd
  float weight_decay = 0;
  float beta1 = 0.9f;  // adamw
  float beta2 = 0.999f;
  float epsilon = 1e-8f;
};

class Optimizer {
 public:
  static Result<Optimizer> create(Device& device, const ModelSpec& spec, const OptimizerOptions& options);

  void step(float* parameters, const float* gradients, float rate);

  // What a checkpoint keeps besides the parameters: buffers of parameter_count floats each, and the count.
  struct Slot {
    std::string name;  // "momentum_buffer"; "exp_avg", "exp_avg_sq", as in PyTorch
    float* data = nullptr;
  };
  std::vector<Slot> slots() const;
  std::int64_t steps() const { return steps_; }
  void set_steps(std::int64_t steps) { steps_ = steps; }

 private:
  Optimizer(Device& device, const ModelSpec& spec, const OptimizerOptions& options)
      : device_(&device), spec_(&spec), options_(options) {}

  Device* device_;
  const ModelSpec* spec_;
  OptimizerOptions options_;
  std::int64_t steps_ = 0;
  Memory first_;   // momentum_buffer or exp_avg
  Memory second_;  // exp_avg_sq
};

}  // namespace trainer
