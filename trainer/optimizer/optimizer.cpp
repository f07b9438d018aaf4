#include "trainer/optimizer/optimizer.hpp"

namespace trainer {

Result<Optimizer> Optimizer::create(Device& device, const ModelSpec& spec, const OptimizerOptions& options) {
  Optimizer optimizer(device, spec, options);
  auto adam = options.name == "adamw";
  for (auto* memory : {&optimizer.first_, &optimizer.second_}) {
    if (memory == &optimizer.first_ ? !adam && options.momentum == 0 : !adam) continue;
    auto made = device.allocate(spec.parameter_count * sizeof(float));
    if (!made) return std::move(made).error().under("optimizer");
    *memory = std::move(*made);
  }
  return optimizer;
}

void Optimizer::step(float* parameters, const float* gradients, float rate) {
  ++steps_;
  auto update = [&](std::size_t begin, std::size_t count, float decay) {
    auto part = [&](const Memory& memory) { return memory.data() ? memory.floats() + begin : nullptr; };
    if (options_.name == "adamw") {
      device_->adamw(parameters + begin, gradients + begin, part(first_), part(second_), count,
                     {rate, options_.beta1, options_.beta2, options_.epsilon, decay, steps_});
    } else {
      device_->sgd(parameters + begin, gradients + begin, part(first_), count,
                   {rate, options_.momentum, decay, steps_ == 1});
    }
  };
  if (options_.weight_decay == 0) return update(0, spec_->parameter_count, 0);
  for (const auto& parameter : spec_->parameters) {
    update(parameter.offset, parameter.count, parameter.bias ? 0 : options_.weight_decay);
  }
}

std::vector<Optimizer::Slot> Optimizer::slots() const {
  if (options_.name == "adamw") return {{"exp_avg", first_.floats()}, {"exp_avg_sq", second_.floats()}};
  if (first_.data()) return {{"momentum_buffer", first_.floats()}};
  return {};
}

}  // namespace trainer
