// The command line of `train`, as values. Pure but for the printing of help; CLI11 is known here alone.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "trainer/collective/collective.hpp"
#include "trainer/data/loader.hpp"
#include "trainer/loop/injection.hpp"
#include "trainer/optimizer/optimizer.hpp"

namespace trainer {

enum class Command { train, pack, allreduce };

struct Options {
  Command command = Command::train;

  // data
  std::string data;
  LoaderOptions loader;
  std::optional<int> batch_size;    // images per rank and pass
  std::optional<int> global_batch;  // images of all ranks per step
  int test_batch_size = 250;
  bool drop_last = false;

  // model and optimizer
  std::string model = "mlp";
  std::vector<int> hidden = {512, 512};
  OptimizerOptions optimizer;
  double rate = 0.05;
  std::string schedule = "constant";
  std::int64_t warmup = 0;
  std::optional<std::int64_t> step_every;  // steps; an epoch unless given
  double gamma = 0.1;
  float clip = 0;  // 0: none
  int accumulate = 1;

  // how long
  std::optional<std::int64_t> epochs;
  std::optional<std::int64_t> steps;
  std::uint64_t seed = 1;

  // data parallelism
  InitOptions init;
  std::string backend = "auto";
  bool no_cuda = false;
  Reduction reduction = Reduction::fast;
  int shards = 8;
  double bucket_mb = 25;
  double first_bucket_mb = 1;
  std::int64_t check_every = 100;  // 0: never
  Milliseconds collective_timeout = std::chrono::seconds(300);
  std::string mode = "ddp";
  std::vector<int> device_ids;
  std::optional<int> output_device;
  bool compare = false;
  bool no_shared_memory = false;

  // keeping
  std::string save;
  std::int64_t save_every = 50;  // 0: at the end alone
  int keep = 3;
  std::string resume;  // "", "auto" or a file
  std::string init_weights;
  bool save_model = false;

  // telling
  std::int64_t log_every = 50;
  bool digest = false;
  std::string plot;

  std::optional<Injection> injection;

  // of `pack` and `allreduce`
  std::vector<std::string> pack_inputs;
  std::string pack_output;
  std::string sizes = "1K:256M";
  int iterations = 20;
};

// Text of --help or --version to print instead: exit 0.
struct Parsed {
  Options options;
  std::optional<std::string> text;
};

Result<Parsed> parse_options(int argc, const char* const* argv);

}  // namespace trainer
