#include "trainer/report/metrics.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>

namespace trainer {
namespace {

using Json = nlohmann::ordered_json;

// Steps that allocate, connect and fill caches, and tell nothing about the rest.
constexpr std::int64_t kWarmUpSteps = 3;
constexpr double kWorthNaming = 0.25;

void add(StepTimes& sum, const StepTimes& times) {
  sum.data += times.data;
  sum.upload += times.upload;
  sum.forward += times.forward;
  sum.backward += times.backward;
  sum.reduce_busy += times.reduce_busy;
  sum.reduce_exposed += times.reduce_exposed;
  sum.update += times.update;
  sum.total += times.total;
  sum.reduced_bytes += times.reduced_bytes;
  sum.images += times.images;
}

StepTimes mean_of(const StepTimes& sum, std::int64_t steps) {
  StepTimes mean = sum;
  auto count = static_cast<double>(steps);
  for (auto part :
       {&StepTimes::data, &StepTimes::upload, &StepTimes::forward, &StepTimes::backward,
        &StepTimes::reduce_busy, &StepTimes::reduce_exposed, &StepTimes::update, &StepTimes::total}) {
    mean.*part /= count;
  }
  mean.reduced_bytes /= static_cast<std::size_t>(steps);
  mean.images /= static_cast<std::size_t>(steps);
  return mean;
}

double ratio(double part, double whole) { return whole > 0 ? part / whole : 0; }
double share(double part, double whole) { return std::clamp(ratio(part, whole), 0.0, 1.0); }

double overlap(const StepTimes& times) {
  return times.reduce_busy > 0 ? 1 - share(times.reduce_exposed, times.reduce_busy) : 0;
}

// Numbers for people and plots: as many digits as mean something. A loss keeps all of its own.
Json rounded(double value, double per_unit) {
  return std::isfinite(value) ? Json(std::round(value * per_unit) / per_unit) : Json(nullptr);
}
Json milliseconds(double seconds) { return rounded(seconds * 1e3, 1e4); }
Json exact(double value) { return std::isfinite(value) ? Json(value) : Json(nullptr); }

std::string percent(double share) {
  char text[16];
  std::snprintf(text, sizeof text, "%.0f %%", share * 100);
  return text;
}

}  // namespace

void Metrics::add(const StepTimes& times) {
  if (steps_ == kWarmUpSteps) whole_ = {};
  trainer::add(interval_, times);
  trainer::add(whole_, times);
  ++interval_steps_;
  ++steps_;
}

MetricsLine Metrics::line(std::int64_t step, std::int64_t epoch, double loss, double rate) {
  const auto& sum = interval_;
  MetricsLine line{.step = step, .epoch = epoch, .loss = loss, .rate = rate};
  line.images_per_second = ratio(static_cast<double>(sum.images), sum.total);
  line.mean = mean_of(sum, std::max<std::int64_t>(interval_steps_, 1));
  line.data_wait = share(sum.data, sum.total);
  line.communication = share(sum.reduce_exposed, sum.total);
  line.overlap = overlap(sum);
  line.bus_bytes_per_second = ratio(static_cast<double>(sum.reduced_bytes), sum.reduce_busy) * 2 *
                              (world_size_ - 1) / std::max(world_size_, 1);
  interval_ = {};
  interval_steps_ = 0;
  lines_.push_back(line);
  return line;
}

std::string MetricsLine::json() const {
  Json json{{"step", step},
            {"epoch", epoch},
            {"loss", exact(loss)},
            {"lr", exact(rate)},
            {"images_per_s", rounded(images_per_second, 10)},
            {"ms",
             {{"data", milliseconds(mean.data)},
              {"upload", milliseconds(mean.upload)},
              {"forward", milliseconds(mean.forward)},
              {"backward", milliseconds(mean.backward)},
              {"reduce", milliseconds(mean.reduce_busy)},
              {"reduce_exposed", milliseconds(mean.reduce_exposed)},
              {"update", milliseconds(mean.update)},
              {"total", milliseconds(mean.total)}}},
            {"data_wait", rounded(data_wait, 1e3)},
            {"communication", rounded(communication, 1e3)},
            {"overlap", rounded(overlap, 1e3)},
            {"bus_gb_per_s", rounded(bus_bytes_per_second / 1e9, 1e3)}};
  return json.dump();
}

std::string Metrics::held_back_by() const {
  double data = share(whole_.data, whole_.total);
  double communication = share(whole_.reduce_exposed, whole_.total);
  double compute = std::max(0.0, 1 - data - communication);
  if (data >= kWorthNaming && data >= communication) {
    return "held back by data: " + percent(data) +
           " of the time the loader was waited for; try --workers, a larger --prefetch, or `train pack`";
  }
  if (communication < kWorthNaming) {
    return "held back by compute: " + percent(compute) + " of the time; try " +
           (world_size_ > 1 ? "more ranks" : "several ranks") + ", a GPU, or a larger --batch-size";
  }
  std::string text = "held back by communication: " + percent(communication) +
                     " of the time peers were waited for, " + percent(overlap(whole_)) +
                     " of the reduction was hidden; try ";
  // What is sent at the end cannot hide behind backward; smaller buckets begin earlier.
  if (overlap(whole_) < 0.5) text += "--bucket-mb 1, ";
  return text + "--accumulate 2, a larger --batch-size, or a faster network interface";
}

}  // namespace trainer
