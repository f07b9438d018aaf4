#include "trainer/parallel/data_parallel.hpp"

#include <algorithm>
#include <optional>

namespace trainer {

std::vector<int> scatter_sizes(int batch, int parts) {
  std::vector<int> sizes(std::size_t(parts), 0);
  auto each = (batch + parts - 1) / parts;
  for (auto& size : sizes) {
    size = std::min(each, batch);
    batch -= size;
  }
  return sizes;
}

struct DataParallel::Replica {
  Device* device = nullptr;
  Network* network = nullptr;
  std::optional<Network> own;  // the first device has the master instead
  Memory images, logits_gradient, gradients;
  const float* logits = nullptr;
};

namespace {

void move(Device& to_device, float* to, Device& from_device, const float* from, std::size_t count) {
  if (count == 0) return;
  if (&to_device == &from_device) {
    to_device.copy(to, from, count);
  } else {
    to_device.copy_from(to, from_device, from, count);
  }
}

}  // namespace

DataParallel::DataParallel(int size, int output) : output_(output), crew_(size) {}
DataParallel::~DataParallel() = default;

Result<std::unique_ptr<DataParallel>> DataParallel::create(Device& home, Network& master,
                                                           std::vector<std::unique_ptr<Device>> others,
                                                           int output, int largest_batch) {
  auto size = int(others.size()) + 1;
  std::unique_ptr<DataParallel> made(new DataParallel(size, output));
  made->owned_ = std::move(others);
  const auto& spec = master.spec();
  auto classes = std::size_t(spec.classes);
  auto part = std::size_t((largest_batch + size - 1) / size);
  Result<> good;
  auto allocate = [&](Memory& memory, Device& device, std::size_t floats) {
    if (!good) return;
    auto made_memory = device.allocate(floats * sizeof(float));
    if (!made_memory) {
      good = std::move(made_memory).error().under(device.name());
    } else {
      memory = std::move(*made_memory);
    }
  };
  for (int i = 0; i < size; ++i) {
    auto& replica = *made->replicas_.emplace_back(std::make_unique<Replica>());
    replica.device = i == 0 ? &home : made->owned_[std::size_t(i) - 1].get();
    if (i > 0) {
      auto network = Network::create(*replica.device, spec, int(part));
      if (!network) return std::move(network).error().under(replica.device->name());
      replica.own.emplace(std::move(*network));
    }
    replica.network = i == 0 ? &master : &*replica.own;
    allocate(replica.images, *replica.device, part * spec.input.pixels());
    allocate(replica.logits_gradient, *replica.device, part * classes);
    if (i > 0) allocate(replica.gradients, *replica.device, spec.parameter_count);
  }
  auto& output_device = *made->replicas_[std::size_t(output)]->device;
  allocate(made->logits_, output_device, std::size_t(largest_batch) * classes);
  allocate(made->logits_gradient_, output_device, std::size_t(largest_batch) * classes);
  allocate(made->labels_, output_device, std::size_t(largest_batch));
  allocate(made->loss_, output_device, 1);
  allocate(made->scratch_, home, spec.parameter_count);
  if (!good) return std::move(good).error();
  return made;
}

std::vector<Device*> DataParallel::devices() const {
  std::vector<Device*> all;
  for (const auto& replica : replicas_) all.push_back(replica->device);
  return all;
}

Result<Mark> DataParallel::pass(const Batch& batch, float* gradients, float* loss, float scale,
                                bool accumulate) {
  auto& home = *replicas_[0]->device;
  auto& output = *replicas_[std::size_t(output_)]->device;
  const auto& spec = replicas_[0]->network->spec();
  const auto count = spec.parameter_count;
  const auto classes = std::size_t(spec.classes);
  const auto sizes = scatter_sizes(batch.size, int(replicas_.size()));
  std::vector<std::size_t> first(sizes.size() + 1, 0);
  for (std::size_t i = 0; i < sizes.size(); ++i) first[i + 1] = first[i] + std::size_t(sizes[i]);

  crew_.run([&](int number) {
    auto i = std::size_t(number);
    auto& replica = *replicas_[i];
    if (sizes[i] == 0) return;
    if (i > 0)
      move(*replica.device, replica.network->parameters(), home, replicas_[0]->network->parameters(), count);
    move(*replica.device, replica.images.floats(), home, batch.images + first[i] * spec.input.pixels(),
         std::size_t(sizes[i]) * spec.input.pixels());
    replica.logits = replica.network->forward(replica.images.floats(), sizes[i]);
  });

  for (std::size_t i = 0; i < sizes.size(); ++i) {
    move(output, logits_.floats() + first[i] * classes, *replicas_[i]->device, replicas_[i]->logits,
         std::size_t(sizes[i]) * classes);
  }
  // Labels are as wide as floats and are copied as such.
  move(output, labels_.floats(), home, reinterpret_cast<const float*>(batch.labels), std::size_t(batch.size));
  output.fill(loss_.floats(), 0, 1);
  output.cross_entropy(logits_gradient_.floats(), loss_.floats(), logits_.floats(),
                       static_cast<const std::int32_t*>(labels_.data()), std::size_t(batch.size),
                       spec.classes, scale);
  move(home, scratch_.floats(), output, loss_.floats(), 1);
  home.add(loss, scratch_.floats(), 1);
  const auto forward_done = home.mark();

  crew_.run([&](int number) {
    auto i = std::size_t(number);
    auto& replica = *replicas_[i];
    if (sizes[i] == 0) return;
    move(*replica.device, replica.logits_gradient.floats(), output,
         logits_gradient_.floats() + first[i] * classes, std::size_t(sizes[i]) * classes);
    replica.network->backward(replica.logits_gradient.floats(),
                              i == 0 ? gradients : replica.gradients.floats(), i == 0 && accumulate);
  });

  for (std::size_t i = 1; i < sizes.size(); ++i) {
    if (sizes[i] == 0) continue;
    move(home, scratch_.floats(), *replicas_[i]->device, replicas_[i]->gradients.floats(), count);
    home.add(gradients, scratch_.floats(), count);
  }
  for (const auto& device : owned_) {
    auto good = device->synchronize();
    if (!good) return std::move(good).error().under(device->name());
  }
  return forward_done;
}

}  // namespace trainer
