// Gradients summed by NCCL on a stream of its own, bucket by bucket, while the lane still computes the
// others. The host only queues: each bucket waits on the GPU for the lane to have written it, and what
// follows finish() on the lane waits there for the last bucket. finish() itself waits for the step before, so
// that the host is never more than a step ahead and a lost peer is found; the times it returns are that
// step's.
#pragma once

#include <memory>
#include <vector>

#include "trainer/collective/nccl/nccl_group.hpp"
#include "trainer/parallel/reducer.hpp"

namespace trainer::cuda {

class NcclReducer : public Reducer {
 public:
  static Result<std::unique_ptr<NcclReducer>> create(NcclGroup& group, float* gradients,
                                                     std::vector<Bucket> buckets);
  ~NcclReducer() override { group_.drain(); }
  void begin() override;
  void ready(std::size_t offset) override;
  Result<ReduceTimes> finish() override;

 private:
  struct Step {
    std::vector<Event> written;  // by the lane; one for each bucket, as are the next two
    std::vector<Event> start;
    std::vector<Event> done;
    Event lane;  // when the lane came to finish()
    bool queued = false;
  };

  NcclReducer(NcclGroup& group, float* gradients, std::vector<Bucket> buckets)
      : group_(group), gradients_(gradients), buckets_(std::move(buckets)) {}
  void reduce(std::size_t bucket);
  ReduceTimes times_of(const Step& step) const;

  NcclGroup& group_;
  float* gradients_;
  std::vector<Bucket> buckets_;
  Step steps_[2];  // this one and the one before, in turn
  std::size_t turn_ = 0;
  std::size_t next_ = 0;  // the bucket to be reduced next
  Result<> state_;        // of this step
};

Result<std::unique_ptr<Reducer>> make_nccl_reducer(Collective& nccl, Device& device, float* gradients,
                                                   std::vector<Bucket> buckets);

}  // namespace trainer::cuda
