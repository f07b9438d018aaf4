#include "trainer/loop/allreduce.hpp"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdio>

#include "trainer/loop/session.hpp"

namespace trainer {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kLargest = std::size_t(16) << 30;

Result<std::size_t> parse_size(const std::string& text) {
  std::size_t number = 0;
  const auto* end = text.data() + text.size();
  auto [stop, error] = std::from_chars(text.data(), end, number);
  std::string suffix(stop, end);
  int shift = suffix.empty()                   ? 0
              : suffix == "K" || suffix == "k" ? 10
              : suffix == "M" || suffix == "m" ? 20
              : suffix == "G" || suffix == "g" ? 30
                                               : -1;
  if (error != std::errc{} || shift < 0 || number == 0 || number > kLargest >> shift) {
    return Error{Errc::usage, "'" + text + "' is no size", "give bytes, or 4K, 1M, up to 16G"};
  }
  return std::max((number << shift) / sizeof(float) * sizeof(float), sizeof(float));
}

// Small whole numbers, so that sums of floats are exact: rank r has r + i % 7 at place i.
float value_of(int rank, std::size_t i) { return float(rank) + float(i % 7); }
float sum_of(int ranks, std::size_t i) {
  return float(ranks) * float(ranks - 1) / 2 + float(ranks) * float(i % 7);
}

// Floats of a device's memory, and how the ranks sum them there.
class Summands {
 public:
  static Result<Summands> create(Device& device, Collective& group, std::size_t count, Reduction reduction) {
    Summands made(device, group, count, reduction);
    auto memory = device.allocate(count * sizeof(float));
    if (!memory) return std::move(memory).error();
    made.memory_ = std::move(*memory);
    if (device.host_reads_it()) return made;
    auto reducer = make_reducer(device, group, made.memory_.floats(), {{0, count}}, reduction);
    if (!reducer) return std::move(reducer).error();
    made.reducer_ = std::move(*reducer);
    return made;
  }

  // Over as soon as it is queued where the device has a lane of its own.
  Result<> sum() {
    if (!reducer_) return group_.all_reduce({memory_.floats(), count_}, reduction_);
    reducer_->begin();
    reducer_->ready(0);
    auto times = reducer_->finish();
    return times ? Result<>() : Result<>(std::move(times).error());
  }
  Result<> settle() { return device_.synchronize(); }

  Result<> write(const std::vector<float>& values) {
    device_.upload(memory_.data(), values.data(), memory_.bytes());
    return settle();
  }
  Result<> read(std::vector<float>& values) {
    device_.download(values.data(), memory_.data(), memory_.bytes());
    return settle();
  }

 private:
  Summands(Device& device, Collective& group, std::size_t count, Reduction reduction)
      : device_(device), group_(group), count_(count), reduction_(reduction) {}

  Device& device_;
  Collective& group_;
  std::size_t count_;
  Reduction reduction_;
  Memory memory_;
  std::unique_ptr<Reducer> reducer_;
};

struct Row {
  double seconds = 0;  // of one all-reduce
  std::int64_t wrong = 0;
};

Result<Row> measure(Device& device, Collective& group, std::size_t bytes, const AllreduceOptions& options) {
  std::vector<float> values(bytes / sizeof(float));
  auto summands = Summands::create(device, group, values.size(), options.reduction);
  if (!summands) return std::move(summands).error();
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = value_of(group.rank(), i);
  auto done = summands->write(values);
  if (done) done = summands->sum();
  if (done) done = summands->read(values);
  if (!done) return std::move(done).error();
  Row row;
  for (std::size_t i = 0; i < values.size(); ++i) row.wrong += values[i] != sum_of(group.size(), i);

  std::fill(values.begin(), values.end(), 0.0f);  // zeros stay small, however often they are added
  done = summands->write(values);
  if (done) done = group.barrier();
  auto start = Clock::now();
  for (int i = 0; done && i < options.iterations; ++i) done = summands->sum();
  if (done) done = summands->settle();
  row.seconds = std::chrono::duration<double>(Clock::now() - start).count() / options.iterations;
  // The slowest rank counts.
  std::vector<double> all(std::size_t(group.size()));
  if (done)
    done =
        group.all_gather(std::as_bytes(std::span(&row.seconds, 1)), std::as_writable_bytes(std::span(all)));
  if (done) done = group.all_reduce(std::span<std::int64_t>(&row.wrong, 1));
  if (!done) return std::move(done).error();
  row.seconds = *std::max_element(all.begin(), all.end());
  return row;
}

template <class... T>
void print(std::ostream& out, const char* format, T... values) {
  char line[160];
  std::snprintf(line, sizeof line, format, values...);
  out << line << std::endl;
}

}  // namespace

Result<std::vector<std::size_t>> parse_sizes(const std::string& text) {
  std::vector<std::size_t> sizes;
  if (auto colon = text.find(':'); colon != text.npos) {
    auto first = parse_size(text.substr(0, colon));
    if (!first) return std::move(first).error();
    auto last = parse_size(text.substr(colon + 1));
    if (!last) return std::move(last).error();
    if (*last < *first)
      return Error{Errc::usage, "the last size is below the first", "give FROM:TO, as 1K:256M"};
    for (auto size = *first; size <= *last; size *= 2) sizes.push_back(size);
    return sizes;
  }
  for (std::size_t at = 0; at <= text.size();) {
    auto comma = std::min(text.find(',', at), text.size());
    auto size = parse_size(text.substr(at, comma - at));
    if (!size) return std::move(size).error();
    sizes.push_back(*size);
    at = comma + 1;
  }
  return sizes;
}

Result<> measure_allreduce(Device& device, Collective& group, const AllreduceOptions& options,
                           std::ostream& out) {
  const auto n = double(group.size());
  const auto leads = group.rank() == 0;
  if (leads) {
    print(out, "# %d ranks, %s, memory of %s, %d iterations, in place", group.size(), group.backend().c_str(),
          device.name().c_str(), options.iterations);
    print(out, "#%13s %13s %7s %6s %6s %10s %8s %8s %7s", "size", "count", "type", "redop", "root", "time",
          "algbw", "busbw", "#wrong");
    print(out, "#%13s %13s %7s %6s %6s %10s %8s %8s", "(B)", "(elements)", "", "", "", "(us)", "(GB/s)",
          "(GB/s)");
  }
  double bus_total = 0;
  std::int64_t wrong = 0;
  for (auto bytes : options.sizes) {
    auto row = measure(device, group, bytes, options);
    if (!row) return std::move(row).error();
    const auto algorithm = double(bytes) / row->seconds / 1e9;
    const auto bus = algorithm * 2 * (n - 1) / n;
    bus_total += bus;
    wrong += row->wrong;
    if (leads) {
      print(out, " %13zu %13zu %7s %6s %6d %10.2f %8.2f %8.2f %7lld", bytes, bytes / sizeof(float), "float",
            "sum", -1, row->seconds * 1e6, algorithm, bus, static_cast<long long>(row->wrong));
    }
  }
  if (leads) {
    print(out, "# Out of bounds values : %lld %s", static_cast<long long>(wrong), wrong ? "FAILED" : "OK");
    print(out, "# Avg bus bandwidth    : %g",
          bus_total / double(std::max<std::size_t>(options.sizes.size(), 1)));
  }
  if (wrong) return Error{Errc::failed, std::to_string(wrong) + " sums are wrong"};
  return {};
}

}  // namespace trainer
