// How many of the test images the network gets right. The ranks take contiguous parts without padding, so the
// counts are exact for any number of ranks.
#pragma once

#include "trainer/collective/collective.hpp"
#include "trainer/data/dataset.hpp"
#include "trainer/data/loader.hpp"
#include "trainer/device/device.hpp"
#include "trainer/model/network.hpp"

namespace trainer {

struct Evaluation {
  double loss = 0;      // mean over the test images
  double accuracy = 0;  // 0..1
  std::int64_t right = 0;
  std::int64_t images = 0;
};

// Every rank calls it. `batch`: images at once, at most the network's largest.
Result<Evaluation> evaluate(Collective& collective, Device& device, Network& network, const Dataset& data,
                            int batch, const LoaderOptions& options);

}  // namespace trainer
