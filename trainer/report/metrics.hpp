// Where the time of a run went: times of each step are added up, and every so many steps become one line of
// JSON. Pure: the caller holds the clock.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace trainer {

// Of one optimizer step on this rank, in seconds.
struct StepTimes {
  double data = 0;    // waited for the loader
  double upload = 0;  // host to device
  double forward = 0;
  double backward = 0;
  double reduce_busy = 0;     // something was being reduced, beside backward or not
  double reduce_exposed = 0;  // waited for the reduction after backward
  double update = 0;          // optimizer
  double total = 0;
  std::size_t reduced_bytes = 0;  // of the gradients
  std::size_t images = 0;         // of all ranks
};

struct MetricsLine {
  std::int64_t step = 0;
  std::int64_t epoch = 0;
  double loss = 0;
  double rate = 0;  // learning rate
  double images_per_second = 0;
  StepTimes mean;                   // per step of the interval
  double data_wait = 0;             // share of the time, 0..1
  double communication = 0;         // share that the reduction was waited for
  double overlap = 0;               // share of the reduction that backward hid; 0 if nothing was reduced
  double bus_bytes_per_second = 0;  // as nccl-tests count: bytes / busy time * 2 (n - 1) / n
  std::string json() const;         // one object, no line end; what is not finite becomes null
};

class Metrics {
 public:
  explicit Metrics(int world_size) : world_size_(world_size) {}

  void add(const StepTimes& times);
  // Closes the interval since the last line.
  MetricsLine line(std::int64_t step, std::int64_t epoch, double loss, double rate);
  const std::vector<MetricsLine>& lines() const { return lines_; }

  // "held back by communication: …; try --bucket-mb 1 or --accumulate 2", from all steps but the first few.
  // Waiting for data or peers is named from a quarter of the time on: less leaves nothing worth a flag.
  std::string held_back_by() const;

 private:
  int world_size_;
  StepTimes interval_;
  std::int64_t interval_steps_ = 0;
  StepTimes whole_;
  std::int64_t steps_ = 0;
  std::vector<MetricsLine> lines_;
};

}  // namespace trainer
