// A network on a device: flat parameters, forward and backward, and room for the activations in between.
// The caller owns the gradients and the loss, so one network serves training, evaluation and replicas.
#pragma once

#include <cstddef>
#include <functional>
#include <vector>

#include "trainer/device/device.hpp"
#include "trainer/model/spec.hpp"

namespace trainer {

class Network {
 public:
  // `largest_batch`: images that forward() may be given at once. Both arguments outlive the network.
  static Result<Network> create(Device& device, const ModelSpec& spec, int largest_batch);
  Network(Network&&) noexcept;
  Network& operator=(Network&&) noexcept;
  ~Network();

  const ModelSpec& spec() const { return *spec_; }
  float* parameters() const { return parameters_.floats(); }

  // images: [batch][channel][row][column]. Logits, [batch][class], valid until the next forward().
  const float* forward(const float* images, int batch);

  // Of the last forward(), whose images must still be there. `gradients` is laid out as the parameters.
  // Layers are done from the last to the first; after each, ready(offset) is called: gradients from `offset`
  // to the end have been queued.
  using Ready = std::function<void(std::size_t offset)>;
  void backward(const float* logits_gradient, float* gradients, bool accumulate,
                const Ready& ready = nullptr);

 private:
  struct Step;  // one layer with its buffers; in network.cpp

  Network(Device& device, const ModelSpec& spec);

  Device* device_;
  const ModelSpec* spec_;
  Memory parameters_;
  const float* images_ = nullptr;
  int batch_ = 0;
  std::vector<Step> steps_;
};

// The first values, as PyTorch's layers get them after torch.manual_seed(seed): for weights and biases
// uniform in +-1/sqrt(fan_in), drawn from one mt19937 in the order of the parameters.
std::vector<float> initial_parameters(const ModelSpec& spec, std::uint64_t seed);

}  // namespace trainer
