#include "trainer/optimizer/optimizer.hpp"

namespace trainer {
namespace {

bool decays(const Parameter& parameter) { return !parameter.bias; }

}  // namespace

Result<Optimizer> Optimizer::create(Device& device, const ModelSpec& spec, const OptimizerOptions& options) {
  Optimizer made(device, spec, options);
  const bool adamw = options.name == "adamw";
  if (!adamw && options.name != "sgd") {
    return Error{Errc::usage, "there is no optimizer '" + options.name + "'", "it is sgd or adamw"};
  }
  const std::size_t bytes = spec.parameter_count * sizeof(float);
  if (adamw || options.momentum != 0) {
    auto first = device.allocate(bytes);
    if (!first) return first.error();
    made.first_ = std::move(*first);
  }
  if (adamw) {
    auto second = device.allocate(bytes);
    if (!second) return second.error();
    made.second_ = std::move(*second);
  }
  return made;
}

void Optimizer::step(float* parameters, const float* gradients, float rate) {
  ++steps_;
  const auto& all = spec_->parameters;
  for (std::size_t i = 0; i < all.size();) {
    // Neighbours with the same decay are one range.
    std::size_t next = i + 1;
    while (next < all.size() && (options_.weight_decay == 0 || decays(all[next]) == decays(all[i]))) ++next;
    const std::size_t begin = all[i].offset;
    const std::size_t end = next < all.size() ? all[next].offset : spec_->parameter_count;
    const float decay = decays(all[i]) ? options_.weight_decay : 0;
    float* first = first_.floats() ? first_.floats() + begin : nullptr;
    if (second_.floats()) {
      device_->adamw(parameters + begin, gradients + begin, first, second_.floats() + begin, end - begin,
                     {.rate = rate,
                      .beta1 = options_.beta1,
                      .beta2 = options_.beta2,
                      .epsilon = options_.epsilon,
                      .weight_decay = decay,
                      .step = steps_});
    } else {
      device_->sgd(
          parameters + begin, gradients + begin, first, end - begin,
          {.rate = rate, .momentum = options_.momentum, .weight_decay = decay, .first = steps_ == 1});
    }
    i = next;
  }
}

std::vector<Optimizer::Slot> Optimizer::slots() const {
  if (second_.floats()) return {{"exp_avg", first_.floats()}, {"exp_avg_sq", second_.floats()}};
  if (first_.floats()) return {{"momentum_buffer", first_.floats()}};
  return {};
}

}  // namespace trainer
