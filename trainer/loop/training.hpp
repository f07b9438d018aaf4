// The training loop of one rank: from the options to trained, evaluated and saved parameters. Everything that
// all ranks do together happens here, in one order; the parts know nothing of each other.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "trainer/data/dataset.hpp"
#include "trainer/loop/batch_plan.hpp"
#include "trainer/loop/evaluation.hpp"
#include "trainer/loop/feed.hpp"
#include "trainer/loop/keeper.hpp"
#include "trainer/loop/options.hpp"
#include "trainer/loop/session.hpp"
#include "trainer/optimizer/schedule.hpp"
#include "trainer/parallel/data_parallel.hpp"
#include "trainer/parallel/shard_tree.hpp"
#include "trainer/report/metrics.hpp"
#include "trainer/report/progress_bar.hpp"

namespace trainer {

class Training {
 public:
  // Prepares everything up to the first step. All arguments outlive the training.
  static Result<std::unique_ptr<Training>> create(const Options& options, Session& session,
                                                  const Dataset& data);
  ~Training();

  // Trains to the end, or until the ranks agree to stop since one of them was told to. An error is this
  // rank's.
  Result<> run();

  bool stopped_early() const { return stopped_; }
  const Metrics& metrics() const { return metrics_; }
  std::vector<Device*> devices() const;

  // How the run ended, on rank 0: what held it back, the test accuracy, the digest.
  Result<> conclude();

 private:
  struct Outstanding;  // a step whose head has not been looked at yet

  Training(const Options& options, Session& session, const Dataset& data);
  Result<> prepare();
  void set_end();
  Result<> prepare_data_parallel(int largest_batch);
  Result<> run_epoch();
  Result<> step(const StepPlan& plan);
  Result<> pass(const StepPlan& plan, int index);
  void ready(std::size_t offset);
  Result<> settle(std::size_t leave);
  Result<> look_at(const Outstanding& step);
  Error not_finite(const Outstanding& step);
  Result<> after_step();
  Result<> evaluate_now();
  bool injects(Injection::How how) const;
  void disturb();
  void say(const std::string& line);

  bool leads() const { return session_.place.rank == 0; }
  float* gradients() const { return gradients_.floats() + kGradientHead; }

  const Options& options_;
  Session& session_;
  const Dataset& data_;
  Device& device_;
  Collective& collective_;

  ModelSpec spec_;
  BatchPlan plan_;
  SamplerOptions sampler_;
  std::vector<std::uint32_t> slice_;  // of an independent copy; else empty
  Schedule schedule_;
  std::int64_t last_step_ = 0;
  int test_batch_ = 1;

  std::unique_ptr<Network> network_;
  std::unique_ptr<Optimizer> optimizer_;
  std::unique_ptr<Keeper> keeper_;
  std::unique_ptr<Loader> loader_;
  std::unique_ptr<Feed> feed_;
  Memory gradients_;  // head and parameters
  Memory logits_gradient_;
  Memory norm_;
  std::unique_ptr<ShardTree> tree_;
  std::unique_ptr<DataParallel> data_parallel_;
  std::unique_ptr<Reducer> reducer_;  // may have a thread that uses what is above

  Progress progress_;
  std::size_t completed_from_ = 0;  // of the gradients of the last pass
  std::vector<Outstanding> outstanding_;
  Memory heads_, local_losses_;  // rings, by step
  std::size_t ring_ = 0;
  StepTimes times_;  // of the step under way, as far as the host knows
  double loss_ = 0;
  bool stopped_ = false;
  bool evaluated_ = false;  // since the last step
  Evaluation evaluation_;
  std::optional<Error> unsaid_;  // stdout did not take a line
  Metrics metrics_;
  ProgressBar bar_;
};

}  // namespace trainer
