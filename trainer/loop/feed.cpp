#include "trainer/loop/feed.hpp"

namespace trainer {

Result<std::unique_ptr<Feed>> Feed::create(Loader& loader, Device& device, std::size_t pixels,
                                           int largest_batch) {
  std::unique_ptr<Feed> feed(new Feed(loader, device, pixels));
  if (device.host_reads_it()) return feed;
  for (auto& buffer : feed->buffers_) {
    auto images = device.allocate(std::size_t(largest_batch) * pixels * sizeof(float));
    if (!images) return std::move(images).error().under("batch");
    auto labels = device.allocate(std::size_t(largest_batch) * sizeof(std::int32_t));
    if (!labels) return std::move(labels).error().under("batch");
    buffer.images = std::move(*images);
    buffer.labels = std::move(*labels);
  }
  return feed;
}

Result<Batch> Feed::next() {
  // The batch before this one has been computed with (CPU) or has left the loader's memory (GPU).
  auto done = finish();
  if (!done) return std::move(done).error();
  auto batch = loader_.next();
  if (batch.size == 0) return batch;
  auto& buffer = buffers_[turn_];
  buffer.in_use = true;
  if (device_.host_reads_it()) return batch;
  device_.upload(buffer.images.data(), batch.images, std::size_t(batch.size) * pixels_ * sizeof(float));
  device_.upload(buffer.labels.data(), batch.labels, std::size_t(batch.size) * sizeof(std::int32_t));
  buffer.filled = device_.mark();
  return Batch{buffer.images.floats(), static_cast<const std::int32_t*>(buffer.labels.data()), batch.size};
}

Result<> Feed::finish() {
  auto& buffer = buffers_[turn_];
  if (!buffer.in_use) return {};
  if (!device_.host_reads_it()) {
    auto filled = device_.wait(buffer.filled);
    if (!filled) return filled;
  }
  loader_.release();
  buffer.in_use = false;
  turn_ = 1 - turn_;
  return {};
}

}  // namespace trainer
