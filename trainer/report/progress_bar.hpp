// One line on a terminal that is drawn over and over: how far the run is, its loss and speed, the time left.
// Nothing at all where the stream is no terminal.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace trainer {

// Pure: the line for a terminal of `columns`.
std::string progress_line(std::int64_t step, std::int64_t steps, double loss, double images_per_second,
                          double seconds_left, int columns);

class ProgressBar {
 public:
  explicit ProgressBar(int fd);  // draws if it is a terminal, at most ten times a second
  ~ProgressBar();                // wipes it
  void draw(std::int64_t step, std::int64_t steps, double loss, double images_per_second);
  void wipe();  // before other text is written

 private:
  using Clock = std::chrono::steady_clock;
  int fd_;
  bool shown_ = false;
  std::int64_t first_ = -1;  // the step of the first draw(), at start_; before it: -1
  Clock::time_point start_;
  Clock::time_point drawn_;
};

}  // namespace trainer
