// Makes batches of a split: threads gather images by index and scale them to floats, a bounded number of
// batches ahead. The order is that of the index list, however many threads there are.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "trainer/data/dataset.hpp"
#include "trainer/device/device.hpp"

namespace trainer {

struct LoaderOptions {
  int workers = 1;   // 0: the caller's thread does the work in next()
  int prefetch = 2;  // batches ready or under way at once, at least 1 (with workers)
};

struct Batch {
  const float* images = nullptr;  // host memory of the device: [image][channel][row][column]
  const std::int32_t* labels = nullptr;
  int size = 0;
};

class Loader {
 public:
  // `largest_batch` sizes the slots; slots are the device's host memory (pinned on a GPU). `data` and
  // `device` outlive the loader. `split` is one of data's.
  static Result<std::unique_ptr<Loader>> create(const Dataset& data, const Split& split, Device& device,
                                                int largest_batch, const LoaderOptions& options);
  virtual ~Loader() = default;  // stops the threads

  // A new list of batches, each a list of indices of the split; what was ahead of an old one is dropped.
  virtual void start(std::vector<std::vector<std::uint32_t>> batches) = 0;
  // The next batch. It stays as it is until release() of it; batches are released in order. Size 0: the end.
  virtual Batch next() = 0;
  virtual void release() = 0;
};

}  // namespace trainer
