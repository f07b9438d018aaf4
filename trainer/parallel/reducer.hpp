// Reduces gradients over the ranks, bucket by bucket, while backward still works on earlier layers. One
// object for a run: begin(), then ready() as gradients get their last word, then finish(), at every step.
//
// HostReducer has a thread of its own for the communication and works with any collective on host memory;
// where the device's memory is not the host's, each bucket is staged through pinned memory. NCCL's is in the
// CUDA module.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "trainer/collective/collective.hpp"
#include "trainer/device/device.hpp"
#include "trainer/parallel/buckets.hpp"

namespace trainer {

// Of one step. Times in seconds.
struct ReduceTimes {
  double busy = 0;     // something was being reduced
  double exposed = 0;  // finish() waited; the rest of `busy` was hidden behind backward
  std::size_t bytes = 0;
};

class Reducer {
 public:
  virtual ~Reducer() = default;
  virtual void begin() = 0;
  // Gradients from `offset` (floats, with the head) to the end are queued on the device's lane and will not
  // change until finish().
  virtual void ready(std::size_t offset) = 0;
  // Everything must be ready. When it returns, what the lane is given next sees the sums (not the means).
  virtual Result<ReduceTimes> finish() = 0;
};

// `gradients`: memory of the device, laid out as buckets.hpp says. All arguments outlive the reducer.
Result<std::unique_ptr<Reducer>> make_host_reducer(Device& device, Collective& collective, float* gradients,
                                                   std::vector<Bucket> buckets, Reduction reduction);

}  // namespace trainer
