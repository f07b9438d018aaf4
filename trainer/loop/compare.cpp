#include "trainer/loop/compare.hpp"

#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "trainer/loop/training.hpp"

namespace trainer {
namespace {

constexpr std::int64_t kSteps = 200;

struct Measured {
  double images_per_second = 0;
  std::vector<double> megabytes;  // the most at once, per device
};

Options bare(const Options& options, const std::string& mode) {
  auto measured = options;
  measured.mode = mode;
  measured.steps = options.steps.value_or(kSteps);
  measured.epochs.reset();
  measured.log_every = *measured.steps;
  measured.save.clear();
  measured.resume.clear();
  measured.save_model = false;
  measured.plot.clear();
  measured.injection.reset();
  return measured;
}

double peak(const Device& device) { return double(device.memory_use().peak) / 1e6; }

Result<Measured> measure(const Options& options, Session& session, const Dataset& data) {
  auto training = Training::create(options, session, data);
  if (!training) return std::move(training).error().under(options.mode);
  auto run = (*training)->run();
  if (!run) return std::move(run).error().under(options.mode);
  Measured measured;
  const auto& lines = (*training)->metrics().lines();
  if (!lines.empty()) measured.images_per_second = lines.back().images_per_second;
  for (auto* device : (*training)->devices()) measured.megabytes.push_back(peak(*device));
  return measured;
}

Result<Measured> measure_ddp(const Options& options, Session& session, const Dataset& data) {
  auto ddp = measure(bare(options, "ddp"), session, data);
  if (!ddp) return ddp;
  auto& group = *session.collective;
  auto mine = ddp->megabytes[0];
  ddp->megabytes.resize(std::size_t(group.size()));
  auto gathered =
      group.all_gather(std::as_bytes(std::span(&mine, 1)), std::as_writable_bytes(std::span(ddp->megabytes)));
  if (!gathered) return std::move(gathered).error();
  return ddp;
}

Result<Measured> measure_dp(const Options& options, Session& session, const Dataset& data) {
  Session alone;
  alone.place.local_rank = session.place.local_rank;
  auto dp = bare(options, "dp");
  if (dp.device_ids.empty()) {
    for (int i = 0; i < session.place.world_size; ++i) dp.device_ids.push_back(i);
  }
  // One process has the images of all ranks.
  if (!dp.global_batch)
    dp.global_batch = dp.batch_size.value_or(kDefaultBatch) * session.place.world_size * dp.accumulate;
  dp.batch_size.reset();
  auto device = open_device(dp, dp.device_ids[0]);
  if (!device) return std::move(device).error();
  alone.device = std::move(device->device);
  alone.collective = make_local_collective();
  return measure(dp, alone, data);
}

void print(const char* mode, const Measured& measured) {
  std::printf("%-5s %12.0f  ", mode, measured.images_per_second);
  for (auto megabytes : measured.megabytes) std::printf(" %9.1f", megabytes);
  std::printf("\n");
}

}  // namespace

Result<> compare(const Options& options, Session& session, const Dataset& data) {
  auto ddp = measure_ddp(options, session, data);
  if (!ddp) return std::move(ddp).error();
  Result<> done;
  if (session.place.rank == 0) {
    auto dp = measure_dp(options, session, data);
    if (dp) {
      std::printf("mode      images/s   MB per device\n");
      print("dp", *dp);
      print("ddp", *ddp);
      std::printf("ddp does %.2f times as many images per second\n",
                  ddp->images_per_second / dp->images_per_second);
      std::fflush(stdout);
    } else {
      done = std::move(dp).error();
    }
  }
  auto met = session.collective->barrier();
  return done ? met : done;
}

Result<> compare_under_launcher(const Options& options) {
  auto devices = options.device_ids.empty() ? gpu_count(options) : int(options.device_ids.size());
  if (devices == 0) devices = 2;
  std::error_code none;
  auto self = std::filesystem::read_symlink("/proc/self/exe", none);
  // Beside `train` in a build tree; installed, libexec/dlaunch/train stands beside bin/dlaunch.
  for (auto launcher : {self.parent_path() / "dlaunch", self.parent_path() / "../../bin/dlaunch"}) {
    if (!std::filesystem::exists(launcher, none)) continue;
    std::ifstream file("/proc/self/cmdline");
    std::stringstream content;
    content << file.rdbuf();
    std::vector<std::string> words{launcher.string(), "--nproc_per_node=" + std::to_string(devices),
                                   self.string()};
    std::string word;
    std::getline(content, word, '\0');
    while (std::getline(content, word, '\0')) words.push_back(word);
    std::vector<char*> arguments;
    for (auto& each : words) arguments.push_back(each.data());
    arguments.push_back(nullptr);
    ::execv(launcher.c_str(), arguments.data());
    return dlaunch::last_error("start " + launcher.string());
  }
  return Error{Errc::usage, "--compare needs a rank for each device",
               "dlaunch --nproc_per_node=" + std::to_string(devices) + " train --compare"};
}

}  // namespace trainer
