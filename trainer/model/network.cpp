#include "trainer/model/network.hpp"

#include <optional>

namespace trainer {

// A layer, what it gives, and what its backward needs: the gradient of its output is written by the layer
// behind it.
struct Network::Step {
  Layer layer;
  Memory output;           // dense: [image][out]; else planes
  Memory output_gradient;  // unless it is the last layer, whose comes from outside
  Memory patches;          // convolution: of the input
  Memory chosen;           // pool
  Memory planes;           // convolution over several channels that come as rows: the input as planes
  Memory rows;             // dense behind planes: the input as rows
  bool input_is_planes = false;
};

Network::Network(Device& device, const ModelSpec& spec) : device_(&device), spec_(&spec) {}
Network::Network(Network&&) noexcept = default;
Network& Network::operator=(Network&&) noexcept = default;
Network::~Network() = default;

namespace {

template <class... F>
struct Overload : F... {
  using F::operator()...;
};
template <class... F>
Overload(F...) -> Overload<F...>;

std::size_t outputs_per_image(const Layer& layer) {
  return std::visit(Overload{
                        [](const Dense& d) { return std::size_t(d.out); },
                        [](const Convolution& c) {
                          return std::size_t(c.out_channels) * std::size_t(c.height - c.kernel + 1) *
                                 std::size_t(c.width - c.kernel + 1);
                        },
                        [](const MaxPool& p) {
                          return std::size_t(p.channels) * std::size_t(p.height / 2) *
                                 std::size_t(p.width / 2);
                        },
                    },
                    layer);
}

ConvShape shape_of(const Convolution& c, int batch) {
  return {c.in_channels, batch, c.height, c.width, c.kernel};
}

}  // namespace

Result<Network> Network::create(Device& device, const ModelSpec& spec, int largest_batch) {
  Network network(device, spec);
  Result<> good;
  auto allocate = [&](Memory& memory, std::size_t bytes) {
    if (!good) return;
    auto made = device.allocate(bytes);
    if (made) {
      memory = std::move(*made);
    } else {
      good = std::move(made).error().under(spec.name);
    }
  };
  allocate(network.parameters_, spec.parameter_count * sizeof(float));
  auto batch = std::size_t(largest_batch);
  bool planes = spec.input.channels == 1;  // one channel: both orders are the same
  for (const auto& layer : spec.layers) {
    auto& step = network.steps_.emplace_back();
    step.layer = layer;
    step.input_is_planes = planes;
    auto floats = batch * outputs_per_image(layer);
    allocate(step.output, floats * sizeof(float));
    if (&layer != &spec.layers.back()) allocate(step.output_gradient, floats * sizeof(float));
    if (const auto* c = std::get_if<Convolution>(&layer)) {
      auto shape = shape_of(*c, largest_batch);
      allocate(step.patches, shape.patch() * shape.positions() * sizeof(float));
      if (!planes) allocate(step.planes, batch * spec.input.pixels() * sizeof(float));
      planes = true;
    } else if (std::get_if<MaxPool>(&layer)) {
      allocate(step.chosen, floats);
    } else if (const auto* d = std::get_if<Dense>(&layer)) {
      // The pixels of one channel are rows already.
      if (planes && &layer != &spec.layers.front())
        allocate(step.rows, batch * std::size_t(d->in) * sizeof(float));
      planes = false;
    }
  }
  if (!good) return std::move(good).error();
  return network;
}

const float* Network::forward(const float* images, int batch) {
  images_ = images;
  batch_ = batch;
  const auto* input = images;
  const auto rows = std::size_t(batch);
  for (std::size_t i = 0; i < steps_.size(); ++i) {
    auto& step = steps_[i];
    auto* output = step.output.floats();
    if (const auto* d = std::get_if<Dense>(&step.layer)) {
      if (step.rows.data()) {
        // What lies before is a pool or a convolution: its channels are known from its layer.
        auto channels = plane_channels(i - 1);
        device_->planes_to_rows(step.rows.floats(), input, channels, batch, std::size_t(d->in / channels));
        input = step.rows.floats();
      }
      device_->gemm(false, true, batch, d->out, d->in, 1, input, d->in, weight(d->weight), d->in, 0, output,
                    d->out);
      device_->add_bias_to_columns(output, weight(d->bias), rows, std::size_t(d->out), d->relu);
    } else if (const auto* c = std::get_if<Convolution>(&step.layer)) {
      auto shape = shape_of(*c, batch);
      if (step.planes.data()) {
        device_->rows_to_planes(step.planes.floats(), input, c->in_channels, batch,
                                std::size_t(c->height) * std::size_t(c->width));
        input = step.planes.floats();
      }
      device_->im2col(step.patches.floats(), input, shape);
      auto n = int(shape.positions()), k = int(shape.patch());
      device_->gemm(false, false, c->out_channels, n, k, 1, weight(c->weight), k, step.patches.floats(), n, 0,
                    output, n);
      device_->add_bias_to_rows(output, weight(c->bias), std::size_t(c->out_channels), std::size_t(n),
                                c->relu);
    } else {
      const auto& p = std::get<MaxPool>(step.layer);
      device_->max_pool(output, static_cast<std::uint8_t*>(step.chosen.data()), input,
                        std::size_t(p.channels) * rows, p.height, p.width);
    }
    input = output;
  }
  return input;
}

int Network::plane_channels(std::size_t index) const {
  const auto& layer = steps_[index].layer;
  if (const auto* p = std::get_if<MaxPool>(&layer)) return p->channels;
  return std::get<Convolution>(layer).out_channels;
}

const float* Network::weight(std::size_t index) const {
  return parameters() + spec_->parameters[index].offset;
}

void Network::backward(const float* logits_gradient, float* gradients, bool accumulate, const Ready& ready) {
  const auto rows = std::size_t(batch_);
  const auto beta = accumulate ? 1.0f : 0.0f;
  auto to = [&](std::size_t index) { return gradients + spec_->parameters[index].offset; };
  const float* outside = logits_gradient;
  for (auto i = steps_.size(); i-- > 0;) {
    auto& step = steps_[i];
    // The last layer has no rectifier, so its gradient can stay as it is.
    auto* gradient = i + 1 == steps_.size() ? const_cast<float*>(outside) : step.output_gradient.floats();
    const auto* input = i == 0 ? images_ : steps_[i - 1].output.floats();
    auto* input_gradient = i == 0 ? nullptr : steps_[i - 1].output_gradient.floats();
    if (const auto* d = std::get_if<Dense>(&step.layer)) {
      if (d->relu) device_->relu_backward(gradient, step.output.floats(), rows * std::size_t(d->out));
      if (step.rows.data()) input = step.rows.floats();
      device_->gemm(true, false, d->out, d->in, batch_, 1, gradient, d->out, input, d->in, beta,
                    to(d->weight), d->in);
      device_->sum_columns(to(d->bias), gradient, rows, std::size_t(d->out), accumulate);
      if (input_gradient) {
        // The rows are of no more use: their gradient takes their place.
        auto* target = step.rows.data() ? step.rows.floats() : input_gradient;
        device_->gemm(false, false, batch_, d->in, d->out, 1, gradient, d->out, weight(d->weight), d->in, 0,
                      target, d->in);
        if (step.rows.data()) {
          auto channels = plane_channels(i - 1);
          device_->rows_to_planes(input_gradient, target, channels, batch_, std::size_t(d->in / channels));
        }
      }
      if (ready) ready(spec_->parameters[d->weight].offset);
    } else if (const auto* c = std::get_if<Convolution>(&step.layer)) {
      auto shape = shape_of(*c, batch_);
      auto n = int(shape.positions()), k = int(shape.patch());
      if (c->relu)
        device_->relu_backward(gradient, step.output.floats(), std::size_t(c->out_channels) * std::size_t(n));
      device_->gemm(false, true, c->out_channels, k, n, 1, gradient, n, step.patches.floats(), n, beta,
                    to(c->weight), k);
      device_->sum_rows(to(c->bias), gradient, std::size_t(c->out_channels), std::size_t(n), accumulate);
      if (input_gradient) {
        device_->gemm(true, false, k, n, c->out_channels, 1, weight(c->weight), k, gradient, n, 0,
                      step.patches.floats(), n);
        device_->col2im(input_gradient, step.patches.floats(), shape);
      }
      if (ready) ready(spec_->parameters[c->weight].offset);
    } else {
      const auto& p = std::get<MaxPool>(step.layer);
      device_->max_pool_backward(input_gradient, gradient,
                                 static_cast<const std::uint8_t*>(step.chosen.data()),
                                 std::size_t(p.channels) * rows, p.height, p.width);
    }
  }
}

}  // namespace trainer
