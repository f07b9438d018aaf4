#include "trainer/loop/batch_plan.hpp"

#include <algorithm>
#include <bit>

namespace trainer {
namespace {

Error does_not_divide(const std::string& what, std::int64_t images, const std::string& by,
                      std::int64_t parts) {
  auto low = std::max<std::int64_t>(images / parts, 1) * parts;
  return Error{
      Errc::usage,
      what + " " + std::to_string(images) + " does not divide by " + std::to_string(parts) + " (" + by + ")",
      "the nearest that does: " + std::to_string(low)};
}

Result<BatchPlan> plan_shards(const BatchOptions& options, int rank, int world_size) {
  auto is_power = [](int n) { return n > 0 && std::has_single_bit(unsigned(n)); };
  if (!is_power(options.shards)) {
    return Error{Errc::usage, "--shards: needs a power of two, got " + std::to_string(options.shards)};
  }
  if (!is_power(world_size) || world_size > options.shards) {
    return Error{Errc::usage,
                 "--reduce=tree: " + std::to_string(world_size) + " ranks cannot share " +
                     std::to_string(options.shards) + " shards",
                 "the number of ranks must be a power of two and at most --shards; or use --reduce=fast"};
  }
  auto batch = options.batch_size.value_or(kDefaultBatch);
  auto global = options.global_batch ? std::int64_t(*options.global_batch)
                                     : std::int64_t(batch) * world_size * options.accumulate;
  if (global % options.shards != 0)
    return does_not_divide("the global batch", global, "--shards", options.shards);
  BatchPlan plan;
  plan.lanes = options.shards;
  plan.lane_count = options.shards / world_size;
  plan.first_lane = rank * plan.lane_count;
  plan.lane_batch = int(global / options.shards);
  if (plan.lane_count % options.accumulate != 0) {
    return Error{Errc::usage,
                 "--accumulate " + std::to_string(options.accumulate) + ": a rank has " +
                     std::to_string(plan.lane_count) +
                     " shards per step, which it cannot part into so many passes",
                 "raise --shards, or use --reduce=fast"};
  }
  return plan;
}

}  // namespace

Result<BatchPlan> plan_batches(const BatchOptions& options, int rank, int world_size) {
  if (options.reduction == Reduction::tree) return plan_shards(options, rank, world_size);
  BatchPlan plan;
  plan.lanes = world_size;
  plan.first_lane = rank;
  plan.lane_passes = options.accumulate;
  plan.lane_batch = options.batch_size.value_or(kDefaultBatch);
  if (options.global_batch) {
    auto parts = std::int64_t(world_size) * options.accumulate;
    if (*options.global_batch % parts != 0) {
      return does_not_divide("--global-batch", *options.global_batch, "ranks times --accumulate", parts);
    }
    plan.lane_batch = int(*options.global_batch / parts);
  }
  return plan;
}

EpochPlan plan_epoch(const BatchPlan& plan, SamplerOptions sampler, std::uint64_t epoch,
                     std::int64_t samples_done) {
  sampler.ranks = plan.lanes;
  std::vector<std::vector<std::uint32_t>> lanes;
  for (int lane = 0; lane < plan.lane_count; ++lane) {
    sampler.rank = plan.first_lane + lane;
    lanes.push_back(sample(sampler, epoch));
  }
  EpochPlan result;
  auto length = std::int64_t(lanes[0].size());
  for (auto at = std::min(samples_done / plan.lanes, length); at < length;) {
    auto step_end = std::min(at + std::int64_t(plan.lane_batch) * plan.lane_passes, length);
    StepPlan step{0, (step_end - at) * plan.lanes};
    for (const auto& lane : lanes) {
      for (auto from = at; from < step_end; from += plan.lane_batch) {
        auto to = std::min(from + plan.lane_batch, step_end);
        result.batches.emplace_back(lane.begin() + from, lane.begin() + to);
        ++step.passes;
      }
    }
    result.steps.push_back(step);
    at = step_end;
  }
  return result;
}

std::int64_t steps_per_epoch(const BatchPlan& plan, SamplerOptions sampler, std::int64_t samples_done) {
  sampler.ranks = plan.lanes;
  auto step = std::int64_t(plan.lane_batch) * plan.lane_passes;
  auto left = std::max<std::int64_t>(std::int64_t(samples_per_rank(sampler)) - samples_done / plan.lanes, 0);
  return (left + step - 1) / step;
}

}  // namespace trainer
