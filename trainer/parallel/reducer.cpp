#include "trainer/parallel/reducer.hpp"

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <thread>

namespace trainer {
namespace {

using Clock = std::chrono::steady_clock;

// A group of one: the gradients are the sums.
class NoReducer : public Reducer {
 public:
  void begin() override {}
  void ready(std::size_t) override {}
  Result<ReduceTimes> finish() override { return ReduceTimes{}; }
};

class HostReducer : public Reducer {
 public:
  HostReducer(Device& device, Collective& collective, float* gradients, std::vector<Bucket> buckets,
              Reduction reduction, Memory staging)
      : device_(device),
        collective_(collective),
        gradients_(gradients),
        buckets_(std::move(buckets)),
        reduction_(reduction),
        staging_(std::move(staging)),
        written_(buckets_.size()),
        thread_(&HostReducer::serve, this) {}

  ~HostReducer() override {
    {
      std::lock_guard lock(mutex_);
      over_ = true;
    }
    changed_.notify_all();
    thread_.join();  // a collective under way ends within the group's time-out
  }

  void begin() override {
    std::lock_guard lock(mutex_);
    ready_ = done_ = 0;
    times_ = {};
  }

  void ready(std::size_t offset) override {
    auto mark = device_.mark();
    {
      std::lock_guard lock(mutex_);
      while (ready_ < buckets_.size() && buckets_[ready_].begin >= offset) written_[ready_++] = mark;
    }
    changed_.notify_all();
  }

  Result<ReduceTimes> finish() override {
    auto start = Clock::now();
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return fault_ || done_ == buckets_.size(); });
    if (fault_) return *fault_;
    times_.exposed = std::chrono::duration<double>(Clock::now() - start).count();
    return times_;
  }

 private:
  void serve() {
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [&] { return over_ || (!fault_ && done_ < ready_); });
      if (over_) return;
      auto bucket = buckets_[done_];
      auto mark = written_[done_];
      lock.unlock();
      auto start = Clock::now();
      auto reduced = reduce(bucket, mark);
      lock.lock();
      times_.busy += std::chrono::duration<double>(Clock::now() - start).count();
      times_.bytes += (bucket.end - bucket.begin) * sizeof(float);
      if (!reduced) fault_ = std::move(reduced).error();
      ++done_;
      changed_.notify_all();
    }
  }

  Result<> reduce(const Bucket& bucket, Mark written) {
    auto* values = gradients_ + bucket.begin;
    auto count = bucket.end - bucket.begin;
    if (device_.host_reads_it()) return collective_.all_reduce({values, count}, reduction_);
    auto* host = staging_.floats() + bucket.begin;
    auto done = device_.stage_out(host, values, count * sizeof(float), written);
    if (done) done = collective_.all_reduce({host, count}, reduction_);
    if (done) done = device_.stage_in(values, host, count * sizeof(float));
    return done;
  }

  Device& device_;
  Collective& collective_;
  float* gradients_;
  const std::vector<Bucket> buckets_;
  Reduction reduction_;
  Memory staging_;

  std::mutex mutex_;  // of what follows
  std::condition_variable changed_;
  std::size_t ready_ = 0;  // buckets
  std::size_t done_ = 0;
  std::vector<Mark> written_;  // on the lane, by bucket
  ReduceTimes times_;
  std::optional<Error> fault_;
  bool over_ = false;
  std::thread thread_;
};

}  // namespace

Result<std::unique_ptr<Reducer>> make_host_reducer(Device& device, Collective& collective, float* gradients,
                                                   std::vector<Bucket> buckets, Reduction reduction) {
  if (collective.size() == 1) return std::unique_ptr<Reducer>(std::make_unique<NoReducer>());
  Memory staging;
  if (!device.host_reads_it() && !buckets.empty()) {
    auto memory = device.allocate_host(buckets.front().end * sizeof(float));
    if (!memory) return std::move(memory).error().under("staging of gradients");
    staging = std::move(*memory);
  }
  return std::unique_ptr<Reducer>(std::make_unique<HostReducer>(
      device, collective, gradients, std::move(buckets), reduction, std::move(staging)));
}

}  // namespace trainer
