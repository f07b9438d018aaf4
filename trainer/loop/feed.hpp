// Batches where the device can read them: on a CPU the loader's own memory, on a GPU two buffers that are
// filled in turn by the lane.
#pragma once

#include <array>
#include <memory>

#include "trainer/data/loader.hpp"
#include "trainer/device/device.hpp"

namespace trainer {

class Feed {
 public:
  // All arguments outlive the feed.
  static Result<std::unique_ptr<Feed>> create(Loader& loader, Device& device, std::size_t pixels,
                                              int largest_batch);

  // The next batch in device memory. What the lane is given before the next call may read it. Size 0: the
  // end.
  Result<Batch> next();
  // After the last batch of a list, or to drop the rest of one: no batch of it is in use any more.
  Result<> finish();

 private:
  struct Buffer {
    Memory images;
    Memory labels;
    Mark filled = 0;
    bool in_use = false;  // holds back one of the loader's slots
  };
  Feed(Loader& loader, Device& device, std::size_t pixels)
      : loader_(loader), device_(device), pixels_(pixels) {}

  Loader& loader_;
  Device& device_;
  std::size_t pixels_;
  std::array<Buffer, 2> buffers_;
  std::size_t turn_ = 0;
};

}  // namespace trainer
