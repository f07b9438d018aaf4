#include "trainer/collective/nccl/nccl_reducer.hpp"

#include <algorithm>

namespace trainer::cuda {

Result<std::unique_ptr<Reducer>> make_nccl_reducer(Collective& nccl, Device& device, float* gradients,
                                                   std::vector<Bucket> buckets) {
  if (nccl.backend() != "nccl" || device.kind() != DeviceKind::cuda) {
    return Error{Errc::usage, "NCCL's reducer needs NCCL's group and a GPU, got '" + nccl.backend() +
                                  "' and " + device.name()};
  }
  auto reducer = NcclReducer::create(static_cast<NcclGroup&>(nccl), gradients, std::move(buckets));
  if (!reducer) return reducer.error();
  return std::unique_ptr<Reducer>(std::move(*reducer));
}

Result<std::unique_ptr<NcclReducer>> NcclReducer::create(NcclGroup& group, float* gradients,
                                                         std::vector<Bucket> buckets) {
  if (buckets.empty()) return Error{Errc::usage, "NCCL's reducer: no buckets"};
  std::unique_ptr<NcclReducer> reducer(new NcclReducer(group, gradients, std::move(buckets)));
  group.device().use();
  for (Step& step : reducer->steps_) {
    const auto add = [](std::vector<Event>& events, bool timed) -> Result<> {
      auto event = Event::create(timed);
      if (!event) return event.error();
      events.push_back(std::move(*event));
      return {};
    };
    for (std::size_t i = 0; i < reducer->buckets_.size(); ++i) {
      if (auto made = add(step.written, false); !made) return made.error();
      if (auto made = add(step.start, true); !made) return made.error();
      if (auto made = add(step.done, true); !made) return made.error();
    }
    auto lane = Event::create(/*timed=*/true);
    if (!lane) return lane.error();
    step.lane = std::move(*lane);
  }
  return reducer;
}

void NcclReducer::begin() {
  next_ = 0;
  state_ = Result<>();
}

void NcclReducer::ready(std::size_t offset) {
  while (next_ < buckets_.size() && buckets_[next_].begin >= offset) reduce(next_++);
}

void NcclReducer::reduce(std::size_t bucket) {
  if (!state_) return;
  CudaDevice& device = group_.device();
  Step& step = steps_[turn_];
  device.use();
  device.keep(cudaEventRecord(step.written[bucket].get(), device.lane()), "cudaEventRecord");
  device.keep(cudaStreamWaitEvent(group_.stream(), step.written[bucket].get(), 0), "cudaStreamWaitEvent");
  device.keep(cudaEventRecord(step.start[bucket].get(), group_.stream()), "cudaEventRecord");
  float* from = gradients_ + buckets_[bucket].begin;
  const std::size_t count = buckets_[bucket].end - buckets_[bucket].begin;
  state_ = group_.queue(
      "bucket " + std::to_string(bucket),
      [&](ncclComm_t comm, cudaStream_t stream) {
        return ncclAllReduce(from, from, count, ncclFloat32, ncclSum, comm, stream);
      },
      step.done[bucket].get());
}

Result<ReduceTimes> NcclReducer::finish() {
  if (!state_) return state_.error();
  if (next_ != buckets_.size()) {
    return Error{Errc::failed, "bucket " + std::to_string(next_) + " of " + std::to_string(buckets_.size()) +
                                   " was never ready"};
  }
  CudaDevice& device = group_.device();
  Step& step = steps_[turn_];
  device.use();
  device.keep(cudaEventRecord(step.lane.get(), device.lane()), "cudaEventRecord");
  device.keep(cudaStreamWaitEvent(device.lane(), step.done.back().get(), 0), "cudaStreamWaitEvent");
  step.queued = true;

  turn_ = 1 - turn_;
  const Step& before = steps_[turn_];
  if (!before.queued) return ReduceTimes{};
  if (auto done = device.wait_for(before.done.back().get()); !done) return done.error();
  return times_of(before);
}

ReduceTimes NcclReducer::times_of(const Step& step) const {
  const auto seconds = [](const Event& from, const Event& to) {
    float milliseconds = 0;
    return cudaEventElapsedTime(&milliseconds, from.get(), to.get()) == cudaSuccess ? milliseconds / 1e3
                                                                                    : 0.0;
  };
  ReduceTimes times;
  for (std::size_t i = 0; i < buckets_.size(); ++i) times.busy += seconds(step.start[i], step.done[i]);
  times.exposed = std::max(0.0, seconds(step.lane, step.done.back()));
  times.bytes = (buckets_.front().end - buckets_.back().begin) * sizeof(float);
  return times;
}

}  // namespace trainer::cuda
