// `train allreduce`: how long an all-reduce of each size takes, in the columns of nccl-tests, so that figures
// can be laid beside each other. algbw = size / time; busbw = algbw * 2 (n - 1) / n, which does not depend on
// the number of ranks where the links are the limit (nccl-tests, doc/PERFORMANCE.md).
#pragma once

#include <cstddef>
#include <ostream>
#include <string>
#include <vector>

#include "trainer/collective/collective.hpp"
#include "trainer/device/device.hpp"

namespace trainer {

// "1K:256M": doubled from the first to the last; "4K,1M": these. Bytes, with K, M and G as powers of 1024.
// Rounded down to whole floats, at least one.
Result<std::vector<std::size_t>> parse_sizes(const std::string& text);

struct AllreduceOptions {
  std::vector<std::size_t> sizes;  // bytes
  int iterations = 20;
  Reduction reduction = Reduction::fast;
};

// Every rank calls it; rank 0 prints. Sums are checked. A GPU's memory is summed as in training, through
// a reducer; host memory by the group itself.
Result<> measure_allreduce(Device& device, Collective& group, const AllreduceOptions& options,
                           std::ostream& out);

}  // namespace trainer
