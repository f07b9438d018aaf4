// Which images a rank takes, and in which order: exactly torch.utils.data.DistributedSampler, so that a run
// here and one there see the same images at the same step. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace trainer {

struct SamplerOptions {
  std::size_t images = 0;
  int ranks = 1;
  int rank = 0;
  bool shuffle = true;
  std::uint64_t seed = 0;
  bool drop_last = false;
};

// The rank's indices of an epoch (seed + epoch decides the shuffle). Every rank gets as many.
std::vector<std::uint32_t> sample(const SamplerOptions& options, std::uint64_t epoch);
std::size_t samples_per_rank(const SamplerOptions& options);

// The images that independent copy `index` of `count` takes: every count-th, from index on.
std::vector<std::uint32_t> slice_of(std::size_t images, int index, int count);

}  // namespace trainer
