// How a global batch is divided. A *lane* is one sampler's stream of images: a rank, or in tree mode one of
// the logical shards, which are the same whatever the number of ranks. A rank serves one lane, or several
// shards in a row. A *pass* is one forward and backward; a step has one or more. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "trainer/collective/collective.hpp"
#include "trainer/data/sampler.hpp"

namespace trainer {

inline constexpr int kDefaultBatch = 64;

struct BatchOptions {
  std::optional<int> batch_size;    // images of a rank and pass
  std::optional<int> global_batch;  // of all ranks and passes of a step; excludes batch_size
  int accumulate = 1;               // passes of a rank per step
  Reduction reduction = Reduction::fast;
  int shards = 8;
};

struct BatchPlan {
  int lanes = 1;       // of the job
  int first_lane = 0;  // of this rank
  int lane_count = 1;
  int lane_batch = 1;   // images of one lane in one pass
  int lane_passes = 1;  // of one lane per step
};

// What does not divide is Errc::usage, with the numbers.
Result<BatchPlan> plan_batches(const BatchOptions& options, int rank, int world_size);

// One optimizer step of a rank: how many of its batches (passes), and the images of all ranks.
struct StepPlan {
  int passes = 0;
  std::int64_t images = 0;
};

struct EpochPlan {
  std::vector<StepPlan> steps;
  std::vector<std::vector<std::uint32_t>> batches;  // in the order of the passes
};

// `sampler`: images, seed, shuffle and drop_last count. `samples_done`: images that all ranks together have
// taken of this epoch already, with this plan or another.
EpochPlan plan_epoch(const BatchPlan& plan, SamplerOptions sampler, std::uint64_t epoch,
                     std::int64_t samples_done);
// How many steps that plan has.
std::int64_t steps_per_epoch(const BatchPlan& plan, SamplerOptions sampler, std::int64_t samples_done = 0);

}  // namespace trainer
