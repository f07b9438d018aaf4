#include "trainer/model/network.hpp"

#include <algorithm>
#include <optional>
#include <utility>

namespace trainer {

// A dense layer, or a convolution with the pooling behind it.
//
// Convolutions work on a few images at a time, so that the matrix of their patches stays in the cache: planes
// lie chunk after chunk, each as device.hpp says. Where a pooling follows, the bias is added and the negative
// cut off behind it, on a quarter of the numbers; the largest of four is the same either way.
struct Network::Step {
  std::optional<Dense> dense;
  std::optional<Convolution> convolution;
  bool pool = false;
  bool first = false;   // nobody wants the gradient with respect to the input
  bool turn = false;    // the input comes as planes and is wanted as rows, or the other way round
  std::size_t in = 0;   // floats of one image
  std::size_t out = 0;  // the same, behind the pooling
  int in_channels = 0;  // of planes that are turned
  int chunk = 0;        // images

  Memory output;
  Memory gradient;         // with respect to the output; unused in the last layer, where the caller has it
  Memory turned;           // input
  Memory turned_gradient;  // as the dense layer makes it, before it is turned back
  Memory chosen;           // by the pooling
  // Of one chunk:
  Memory patches;    // and then their gradient
  Memory convolved;  // what goes into the pooling, and then its gradient

  // Of the last forward():
  const float* input = nullptr;
  bool patches_kept = false;  // they were those of the whole batch

  std::size_t weight() const { return dense ? dense->weight : convolution->weight; }
  std::size_t bias() const { return dense ? dense->bias : convolution->bias; }
  ConvShape shape(int batch) const {
    return {.channels = convolution->in_channels,
            .batch = batch,
            .height = convolution->height,
            .width = convolution->width,
            .kernel = convolution->kernel};
  }
};

namespace {

// What the patches of a chunk may take: about a second-level cache on a CPU.
constexpr std::size_t kPatchBytesOnCpu = 512 << 10;
constexpr std::size_t kPatchBytesOnGpu = 256 << 20;

// Calls work(first image, images) for each chunk of the batch.
template <class Work>
void in_chunks(int batch, int chunk, Work work) {
  for (int first = 0; first < batch; first += chunk) work(first, std::min(chunk, batch - first));
}

// The layers as steps, without memory.
template <class Step>
Result<std::vector<Step>> steps_of(const ModelSpec& spec) {
  const Error unusable{Errc::usage, "the layers of the model '" + spec.name + "' do not follow each other"};
  std::vector<Step> steps;
  std::size_t features = spec.input.pixels();
  bool planes = spec.input.channels == 1;  // with one channel, rows are planes
  int channels = spec.input.channels;
  for (const Layer& layer : spec.layers) {
    Step step;
    step.first = steps.empty();
    step.in = features;
    step.in_channels = channels;
    if (const auto* dense = std::get_if<Dense>(&layer)) {
      if (std::size_t(dense->in) != features) return unusable;
      step.dense = *dense;
      step.turn = !step.first && steps.back().convolution;
      step.out = std::size_t(dense->out);
    } else if (const auto* convolution = std::get_if<Convolution>(&layer)) {
      step.convolution = *convolution;
      if (!step.first && !steps.back().convolution) return unusable;
      if (std::size_t(convolution->in_channels) * std::size_t(convolution->height) *
              std::size_t(convolution->width) !=
          features) {
        return unusable;
      }
      step.turn = step.first && !planes;
      channels = convolution->out_channels;
      step.out = std::size_t(channels) * step.shape(1).positions();
    } else {
      const auto& pool = std::get<MaxPool>(layer);
      if (steps.empty() || !steps.back().convolution || steps.back().pool) return unusable;
      steps.back().pool = true;
      steps.back().out = features =
          std::size_t(pool.channels) * std::size_t(pool.height / 2) * std::size_t(pool.width / 2);
      continue;
    }
    features = step.out;
    steps.push_back(std::move(step));
  }
  const bool whole = !steps.empty() && steps.back().dense && !steps.back().dense->relu;
  if (!whole || features != std::size_t(spec.classes)) return unusable;
  return steps;
}

}  // namespace

Network::Network(Device& device, const ModelSpec& spec) : device_(&device), spec_(&spec) {}
Network::Network(Network&&) noexcept = default;
Network& Network::operator=(Network&&) noexcept = default;
Network::~Network() = default;

Result<Network> Network::create(Device& device, const ModelSpec& spec, int largest_batch) {
  auto steps = steps_of<Step>(spec);
  if (!steps) return steps.error();
  Network network(device, spec);
  network.steps_ = std::move(*steps);

  // The same for all layers, since they hand chunks to each other; and whatever the largest batch is, since
  // the same batch is to give the same bits.
  const std::size_t limit = device.host_reads_it() ? kPatchBytesOnCpu : kPatchBytesOnGpu;
  std::size_t chunk = std::size_t(largest_batch);
  for (const Step& step : network.steps_) {
    if (!step.convolution) continue;
    const ConvShape one = step.shape(1);
    chunk =
        std::min(chunk, std::max<std::size_t>(limit / (one.patch() * one.positions() * sizeof(float)), 1));
  }

  std::optional<Error> failure;
  const auto allocate = [&](Memory& memory, std::size_t bytes) {
    if (failure) return;
    auto allocated = device.allocate(bytes);
    if (allocated) {
      memory = std::move(*allocated);
    } else {
      failure = allocated.error();
    }
  };
  allocate(network.parameters_, spec.parameter_count * sizeof(float));
  const auto images = std::size_t(largest_batch);
  for (Step& step : network.steps_) {
    step.chunk = int(chunk);
    allocate(step.output, images * step.out * sizeof(float));
    if (&step != &network.steps_.back()) allocate(step.gradient, images * step.out * sizeof(float));
    if (step.turn) allocate(step.turned, images * step.in * sizeof(float));
    if (step.turn && step.dense) allocate(step.turned_gradient, images * step.in * sizeof(float));
    if (!step.convolution) continue;
    const ConvShape shape = step.shape(int(chunk));
    allocate(step.patches, shape.patch() * shape.positions() * sizeof(float));
    if (!step.pool) continue;
    allocate(step.chosen, images * step.out);
    allocate(step.convolved, std::size_t(step.convolution->out_channels) * shape.positions() * sizeof(float));
  }
  if (failure) return *failure;
  return network;
}

const float* Network::forward(const float* images, int batch) {
  images_ = images;
  batch_ = batch;
  const float* input = images;
  for (Step& step : steps_) {
    const float* weight = parameters() + spec_->parameters[step.weight()].offset;
    const float* bias = parameters() + spec_->parameters[step.bias()].offset;
    if (step.turn) {
      const std::size_t pixels = step.in / std::size_t(step.in_channels);
      in_chunks(batch, step.chunk, [&](int first, int count) {
        const std::size_t at = std::size_t(first) * step.in;
        float* turned = step.turned.floats() + at;
        if (step.dense) {
          device_->planes_to_rows(turned, input + at, step.in_channels, count, pixels);
        } else {
          device_->rows_to_planes(turned, input + at, step.in_channels, count, pixels);
        }
      });
      input = step.turned.floats();
    }
    step.input = input;
    float* output = step.output.floats();
    if (step.dense) {
      const Dense& layer = *step.dense;
      device_->gemm(false, true, batch, layer.out, layer.in, 1, input, layer.in, weight, layer.in, 0, output,
                    layer.out);
      device_->add_bias_to_columns(output, bias, std::size_t(batch), std::size_t(layer.out), layer.relu);
    } else {
      const Convolution& layer = *step.convolution;
      step.patches_kept = batch <= step.chunk;
      in_chunks(batch, step.chunk, [&](int first, int count) {
        const ConvShape shape = step.shape(count);
        const auto positions = int(shape.positions());
        const auto patch = int(shape.patch());
        float* out = output + std::size_t(first) * step.out;
        float* convolved = step.pool ? step.convolved.floats() : out;
        device_->im2col(step.patches.floats(), input + std::size_t(first) * step.in, shape);
        device_->gemm(false, false, layer.out_channels, positions, patch, 1, weight, patch,
                      step.patches.floats(), positions, 0, convolved, positions);
        if (step.pool) {
          auto* chosen = static_cast<std::uint8_t*>(step.chosen.data()) + std::size_t(first) * step.out;
          device_->max_pool(out, chosen, convolved, std::size_t(layer.out_channels) * std::size_t(count),
                            shape.out_height(), shape.out_width());
        }
        const auto channels = std::size_t(layer.out_channels);
        device_->add_bias_to_rows(out, bias, channels, std::size_t(count) * step.out / channels, layer.relu);
      });
    }
    input = output;
  }
  return input;
}

void Network::backward(const float* logits_gradient, float* gradients, bool accumulate, const Ready& ready) {
  const float onto = accumulate ? 1 : 0;
  const int batch = batch_;
  for (std::size_t i = steps_.size(); i-- > 0;) {
    Step& step = steps_[i];
    float* before = step.first ? nullptr : steps_[i - 1].gradient.floats();
    const Parameter& weight_of = spec_->parameters[step.weight()];
    const float* weight = parameters() + weight_of.offset;
    float* weight_gradient = gradients + weight_of.offset;
    float* bias_gradient = gradients + spec_->parameters[step.bias()].offset;
    const float* gradient = step.gradient.floats() ? step.gradient.floats() : logits_gradient;
    if (step.dense ? step.dense->relu : step.convolution->relu) {
      device_->relu_backward(step.gradient.floats(), step.output.floats(), std::size_t(batch) * step.out);
    }
    if (step.dense) {
      const Dense& layer = *step.dense;
      device_->sum_columns(bias_gradient, gradient, std::size_t(batch), step.out, accumulate);
      device_->gemm(true, false, layer.out, layer.in, batch, 1, gradient, layer.out, step.input, layer.in,
                    onto, weight_gradient, layer.in);
      if (before) {
        float* in_gradient = step.turn ? step.turned_gradient.floats() : before;
        device_->gemm(false, false, batch, layer.in, layer.out, 1, gradient, layer.out, weight, layer.in, 0,
                      in_gradient, layer.in);
      }
      if (before && step.turn) {
        const std::size_t pixels = step.in / std::size_t(step.in_channels);
        in_chunks(batch, step.chunk, [&](int first, int count) {
          const std::size_t at = std::size_t(first) * step.in;
          device_->rows_to_planes(before + at, step.turned_gradient.floats() + at, step.in_channels, count,
                                  pixels);
        });
      }
    } else {
      const Convolution& layer = *step.convolution;
      const auto channels = std::size_t(layer.out_channels);
      in_chunks(batch, step.chunk, [&](int first, int count) {
        const ConvShape shape = step.shape(count);
        const auto positions = int(shape.positions());
        const auto patch = int(shape.patch());
        const std::size_t at = std::size_t(first) * step.out;
        const bool added = accumulate || first > 0;
        device_->sum_rows(bias_gradient, gradient + at, channels, std::size_t(count) * step.out / channels,
                          added);
        const float* convolved = gradient + at;
        if (step.pool) {
          const auto* chosen = static_cast<const std::uint8_t*>(step.chosen.data()) + at;
          device_->max_pool_backward(step.convolved.floats(), gradient + at, chosen,
                                     channels * std::size_t(count), shape.out_height(), shape.out_width());
          convolved = step.convolved.floats();
        }
        float* patches = step.patches.floats();
        if (!step.patches_kept) device_->im2col(patches, step.input + std::size_t(first) * step.in, shape);
        device_->gemm(false, true, layer.out_channels, patch, positions, 1, convolved, positions, patches,
                      positions, added ? 1 : 0, weight_gradient, patch);
        if (before) {
          device_->gemm(true, false, patch, positions, layer.out_channels, 1, weight, patch, convolved,
                        positions, 0, patches, positions);
          device_->col2im(before + std::size_t(first) * step.in, patches, shape);
        }
      });
      step.patches_kept = step.patches_kept && !before;
    }
    if (ready) ready(weight_of.offset);
  }
}

}  // namespace trainer
