#include "trainer/loop/training.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <limits>
#include <nlohmann/json.hpp>

#include "trainer/collective/rank_names.hpp"
#include "trainer/loop/agreement.hpp"
#include "trainer/loop/stop_signal.hpp"
#include "trainer/parallel/consistency.hpp"
#include "trainer/report/plot.hpp"

namespace trainer {
namespace {

constexpr std::size_t kRing = 4;

using Clock = std::chrono::steady_clock;
double since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

std::size_t megabytes(double size) { return std::size_t(size * 1024 * 1024); }

}  // namespace

struct Training::Outstanding {
  std::int64_t step = 0;
  std::size_t ring = 0;
  // Of each pass: start, after forward, after backward; then before and after the update.
  std::vector<Mark> marks;
  Mark end = 0;  // the head has been copied
  StepTimes times;
  Clock::time_point start;
};

Training::Training(const Options& options, Session& session, const Dataset& data)
    : options_(options),
      session_(session),
      data_(data),
      device_(*session.device),
      collective_(*session.collective),
      metrics_(session.place.world_size),
      bar_(session.place.rank == 0 ? STDERR_FILENO : -1) {}

Training::~Training() = default;

Result<std::unique_ptr<Training>> Training::create(const Options& options, Session& session,
                                                   const Dataset& data) {
  std::unique_ptr<Training> training(new Training(options, session, data));
  auto prepared = training->prepare();
  if (!prepared) return std::move(prepared).error();
  return training;
}

Result<> Training::prepare() {
  const auto& place = session_.place;
  if (options_.injection && options_.injection->rank >= place.world_size) {
    return Error{Errc::usage, "--inject: there is no rank " + std::to_string(options_.injection->rank) +
                                  " of " + std::to_string(place.world_size)};
  }
  auto agreed = check_agreement(collective_, flags_that_must_agree(options_, data_));
  if (!agreed) return agreed;
  auto plan = plan_batches(
      {options_.batch_size, options_.global_batch, options_.accumulate, options_.reduction, options_.shards},
      place.rank, place.world_size);
  if (!plan) return std::move(plan).error();
  plan_ = *plan;
  auto spec = make_model(options_.model, data_.shape, data_.classes, options_.hidden);
  if (!spec) return std::move(spec).error();
  spec_ = std::move(*spec);

  if (place.process_num > 1 && place.world_size == 1)
    slice_ = slice_of(data_.train.size(), place.process_index, place.process_num);
  sampler_ = {.images = slice_.empty() ? data_.train.size() : slice_.size(),
              .ranks = plan_.lanes,
              .seed = options_.seed,
              .drop_last = options_.drop_last};
  auto epoch = steps_per_epoch(plan_, sampler_);
  if (epoch == 0) {
    return Error{Errc::usage,
                 "no step in an epoch: " + std::to_string(sampler_.images) + " images for " +
                     std::to_string(plan_.lanes) + " ranks",
                 "fewer ranks, or without --drop-last"};
  }
  schedule_ = {
      options_.schedule, options_.rate, options_.warmup, /*total=*/0, options_.step_every.value_or(epoch),
      options_.gamma};

  // Buffers need not be larger than what there is.
  const auto lane_batch =
      int(std::min<std::size_t>(std::size_t(plan_.lane_batch), samples_per_rank(sampler_)));
  test_batch_ = int(std::clamp<std::size_t>(data_.test.size(), 1, std::size_t(options_.test_batch_size)));
  auto largest_batch = std::max(lane_batch, test_batch_);
  auto network = Network::create(device_, spec_, largest_batch);
  if (!network) return std::move(network).error();
  network_ = std::make_unique<Network>(std::move(*network));
  auto optimizer = Optimizer::create(device_, spec_, options_.optimizer);
  if (!optimizer) return std::move(optimizer).error();
  optimizer_ = std::make_unique<Optimizer>(std::move(*optimizer));
  keeper_ = std::make_unique<Keeper>(options_, collective_, device_, *network_, *optimizer_);

  auto floats = kGradientHead + spec_.parameter_count;
  Result<> good;
  auto allocate = [&](Memory& memory, std::size_t count, bool on_host) {
    if (!good) return;
    auto made =
        on_host ? device_.allocate_host(count * sizeof(float)) : device_.allocate(count * sizeof(float));
    if (made) {
      memory = std::move(*made);
    } else {
      good = std::move(made).error();
    }
  };
  allocate(gradients_, floats, false);
  allocate(logits_gradient_, std::size_t(lane_batch) * std::size_t(spec_.classes), false);
  allocate(norm_, 1, false);
  allocate(heads_, kRing * kGradientHead, true);
  allocate(local_losses_, kRing, false);
  if (!good) return good;

  if (options_.reduction == Reduction::tree) {
    auto tree = ShardTree::create(device_, gradients_.floats(), floats, plan_.lane_count);
    if (!tree) return std::move(tree).error();
    tree_ = std::make_unique<ShardTree>(std::move(*tree));
  }
  if (options_.mode == "dp") {
    good = prepare_data_parallel(lane_batch);
    if (!good) return good;
  }
  auto reducer =
      make_reducer(device_, collective_, gradients_.floats(),
                   plan_buckets(spec_, megabytes(options_.bucket_mb), megabytes(options_.first_bucket_mb)),
                   options_.reduction);
  if (!reducer) return std::move(reducer).error();
  reducer_ = std::move(*reducer);

  auto loader = Loader::create(data_, data_.train, device_, lane_batch, options_.loader);
  if (!loader) return std::move(loader).error();
  loader_ = std::move(*loader);
  auto feed = Feed::create(*loader_, device_, data_.shape.pixels(), lane_batch);
  if (!feed) return std::move(feed).error();
  feed_ = std::move(*feed);

  std::vector<std::string> told;
  auto progress = keeper_->begin(told);
  if (leads()) {
    for (const auto& text : told) std::fprintf(stderr, "train: %s\n", text.c_str());
  }
  if (!progress) return std::move(progress).error();
  progress_ = *progress;
  set_end();
  if (options_.injection && options_.injection->step >= last_step_) {
    return Error{Errc::usage,
                 "--inject step=" + std::to_string(options_.injection->step) + ": the run has only " +
                     std::to_string(last_step_) + " steps",
                 "steps count from 0"};
  }
  if (options_.check_every > 0)
    return check_parameters(collective_, device_, network_->parameters(), spec_.parameter_count);
  return {};
}

// The end counts in images, not in steps: a run that is continued with another batch has other steps.
void Training::set_end() {
  constexpr auto kForever = std::numeric_limits<std::int64_t>::max();
  last_step_ = options_.steps.value_or(kForever);
  if (options_.epochs || !options_.steps) {
    auto left = options_.epochs.value_or(1) - progress_.epoch;  // with the one under way
    auto whole = steps_per_epoch(plan_, sampler_);
    auto under_way = steps_per_epoch(plan_, sampler_, progress_.epoch_samples);
    auto by_epochs = left <= 0 ? progress_.step : progress_.step + under_way + (left - 1) * whole;
    last_step_ = std::min(last_step_, by_epochs);
  }
  schedule_.total = last_step_;
}

Result<> Training::prepare_data_parallel(int largest_batch) {
  if (session_.place.world_size > 1) {
    return Error{
        Errc::usage,
        "--mode dp is one process, but there are " + std::to_string(session_.place.world_size) + " ranks",
        "start it without a launcher, or with --nproc_per_node=1"};
  }
  if (options_.reduction == Reduction::tree) return Error{Errc::usage, "--mode dp has no --reduce=tree"};
  auto ids = options_.device_ids;
  if (ids.empty()) {
    auto count = device_.kind() == DeviceKind::cuda ? gpu_count(options_) : 2;
    for (int i = 0; i < count; ++i) ids.push_back(i);
  }
  auto output = options_.output_device.value_or(ids[0]);
  auto place = std::find(ids.begin(), ids.end(), output);
  if (place == ids.end()) {
    return Error{Errc::usage, "--output-device " + std::to_string(output) + " is none of --device-ids"};
  }
  std::vector<std::unique_ptr<Device>> others;
  for (std::size_t i = 1; i < ids.size(); ++i) {
    auto other = open_device(options_, ids[i]);
    if (!other) return std::move(other).error().under("--device-ids " + std::to_string(ids[i]));
    others.push_back(std::move(other->device));
  }
  auto made =
      DataParallel::create(device_, *network_, std::move(others), int(place - ids.begin()), largest_batch);
  if (!made) return std::move(made).error();
  data_parallel_ = std::move(*made);
  return {};
}

std::vector<Device*> Training::devices() const {
  return data_parallel_ ? data_parallel_->devices() : std::vector<Device*>{&device_};
}

Result<> Training::run() {
  while (progress_.step < last_step_ && !stopped_) {
    auto epoch = run_epoch();
    if (!epoch) return epoch;
  }
  auto settled = settle(0);
  if (!settled) return settled;
  if (progress_.step == last_step_) stopped_ = false;  // asked too late to matter
  if (options_.check_every > 0) {
    auto same = check_parameters(collective_, device_, network_->parameters(), spec_.parameter_count);
    if (!same) return same;
  }
  auto saved = keeper_->save(progress_);
  if (!saved) return saved;
  saved = keeper_->save_model();
  if (!saved) return saved;
  if (stopped_) {
    // Nobody leaves before rank 0 has saved: the launcher may take the first end for a failure.
    return collective_.barrier();
  }
  return evaluate_now();
}

Result<> Training::run_epoch() {
  auto epoch = plan_epoch(plan_, sampler_, std::uint64_t(progress_.epoch), progress_.epoch_samples);
  if (!slice_.empty()) {
    for (auto& batch : epoch.batches) {
      for (auto& index : batch) index = slice_[index];
    }
  }
  loader_->start(std::move(epoch.batches));
  for (const auto& plan : epoch.steps) {
    if (progress_.step == last_step_ || stopped_) return feed_->finish();
    auto done = step(plan);
    if (done) done = after_step();
    if (!done) return done;
  }
  auto done = feed_->finish();
  if (!done) return done;
  if (stopped_) return {};
  ++progress_.epoch;
  progress_.epoch_samples = 0;
  return progress_.step < last_step_ ? evaluate_now() : Result<>{};
}

bool Training::injects(Injection::How how) const {
  const auto& injection = options_.injection;
  return injection && injection->how == how &&
         applies(*injection, session_.place.rank, progress_.step, session_.place.round);
}

// Before a step.
void Training::disturb() {
  const auto& injection = options_.injection;
  if (!injection || !injects(injection->how) || injection->how == Injection::How::nan) return;
  if (injection->how != Injection::How::flip) return perform(*injection);
  std::uint32_t bits = 0;
  device_.download(&bits, network_->parameters(), sizeof bits);
  (void)device_.synchronize();
  bits ^= 1u << 20;
  device_.upload(network_->parameters(), &bits, sizeof bits);
  (void)device_.synchronize();
}

Result<> Training::step(const StepPlan& plan) {
  Outstanding now;
  now.step = progress_.step;
  now.ring = ring_++ % kRing;
  now.start = Clock::now();
  times_ = {};
  times_.images = std::size_t(plan.images);

  disturb();
  reducer_->begin();
  outstanding_.push_back(std::move(now));
  for (int i = 0; i < plan.passes; ++i) {
    auto passed = pass(plan, i);
    if (!passed) return passed;
  }
  auto reduced = reducer_->finish();
  if (!reduced) return std::move(reduced).error();
  times_.reduce_busy = reduced->busy;
  times_.reduce_exposed = reduced->exposed;
  times_.reduced_bytes = reduced->bytes;

  auto& step = outstanding_.back();
  step.marks.push_back(device_.mark());
  device_.download(heads_.floats() + step.ring * kGradientHead, gradients_.floats(),
                   kGradientHead * sizeof(float));
  if (options_.clip > 0) device_.clip(gradients(), spec_.parameter_count, options_.clip, norm_.floats());
  optimizer_->step(network_->parameters(), gradients(), float(schedule_.at(progress_.step)));
  step.end = device_.mark();
  step.marks.push_back(step.end);
  step.times = times_;

  ++progress_.step;
  progress_.epoch_samples += plan.images;
  evaluated_ = false;
  return {};
}

Result<> Training::pass(const StepPlan& plan, int index) {
  const auto last = index == plan.passes - 1;
  const auto waiting = Clock::now();
  auto batch = feed_->next();
  if (!batch) return std::move(batch).error();
  times_.data += since(waiting);
  if (batch->size == 0) return Error{Errc::failed, "the loader ended before the epoch"};

  // Shards write one buffer each; the passes of an ordinary step add to the same.
  auto* buffer = tree_ ? tree_->target(index) : gradients_.floats();
  const auto accumulate = !tree_ && index > 0;
  if (!accumulate) device_.fill(buffer, 0, kGradientHead);
  if (last) {
    device_.fill(buffer + kStopSlot, stop_signal() ? 1.0f : 0.0f, 1);
    completed_from_ = kGradientHead + spec_.parameter_count;
  }
  auto& marks = outstanding_.back().marks;
  marks.push_back(device_.mark());
  const auto scale = float(1.0 / double(plan.images));
  if (data_parallel_) {
    auto passed = data_parallel_->pass(*batch, buffer + kGradientHead, buffer + kLossSlot, scale, accumulate);
    if (!passed) return std::move(passed).error();
    marks.push_back(*passed);
    if (last) ready(0);
  } else {
    const auto* logits = network_->forward(batch->images, batch->size);
    device_.cross_entropy(logits_gradient_.floats(), buffer + kLossSlot, logits, batch->labels,
                          std::size_t(batch->size), spec_.classes, scale);
    marks.push_back(device_.mark());
    auto report = last ? Network::Ready([this](std::size_t offset) { ready(offset); }) : nullptr;
    network_->backward(logits_gradient_.floats(), buffer + kGradientHead, accumulate, report);
  }
  if (tree_ && !last) tree_->add(index);
  marks.push_back(device_.mark());
  return {};
}

// Gradients from `offset` (of the parameters) on have got their last word on this rank; with the first
// parameter the head is complete too.
void Training::ready(std::size_t offset) {
  auto from = offset == 0 ? 0 : offset + kGradientHead;
  if (tree_) tree_->complete(from, completed_from_);
  completed_from_ = from;
  if (from == 0) {
    if (injects(Injection::How::nan)) {
      device_.fill(gradients_.floats() + kLossSlot, std::numeric_limits<float>::quiet_NaN(), 1);
    }
    device_.copy(local_losses_.floats() + outstanding_.back().ring, gradients_.floats() + kLossSlot, 1);
  }
  reducer_->ready(from);
}

// Looks at the steps that are done, all but the newest `leave`: on a GPU one is left under way.
Result<> Training::settle(std::size_t leave) {
  while (outstanding_.size() > leave) {
    auto step = std::move(outstanding_.front());
    outstanding_.erase(outstanding_.begin());
    auto looked = look_at(step);
    if (!looked) return looked;
  }
  return {};
}

Result<> Training::look_at(const Outstanding& step) {
  auto past = device_.wait(step.end);
  if (!past) return past;
  const auto* head = heads_.floats() + step.ring * kGradientHead;
  loss_ = head[kLossSlot];
  if (!std::isfinite(loss_)) return not_finite(step);
  if (head[kStopSlot] > 0) stopped_ = true;

  auto times = step.times;
  const auto& marks = step.marks;
  for (std::size_t i = 0; i + 2 < marks.size(); i += 3) {
    times.forward += device_.seconds(marks[i], marks[i + 1]);
    times.backward += device_.seconds(marks[i + 1], marks[i + 2]);
  }
  times.update = device_.seconds(marks[marks.size() - 2], marks.back());
  // With one step left under way, this one ended for the host where that began.
  auto end = outstanding_.empty() ? Clock::now() : outstanding_.front().start;
  times.total = std::chrono::duration<double>(end - step.start).count();
  metrics_.add(times);
  return {};
}

// Every rank comes here at the same step, since all see the same sum.
Error Training::not_finite(const Outstanding& step) {
  float mine = 0;
  device_.download(&mine, local_losses_.floats() + step.ring, sizeof mine);
  auto done = device_.synchronize();
  std::vector<float> all(std::size_t(collective_.size()), mine);
  if (done)
    done = collective_.all_gather(std::as_bytes(std::span(&mine, 1)), std::as_writable_bytes(std::span(all)));
  std::string where = "step " + std::to_string(step.step) + ": ";
  if (!done) return std::move(done).error().under(where + "the loss is not finite");
  std::vector<int> ranks;
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    if (!std::isfinite(all[rank])) ranks.push_back(int(rank));
  }
  auto whose = ranks.empty() ? std::string("the sum of all ranks") : rank_names(ranks);
  return Error{
      Errc::failed,
      where + "the loss of " + whose + " is not finite (" + (std::isnan(loss_) ? "nan" : "inf") + ")",
      "try a smaller --lr or --clip"};
}

Result<> Training::after_step() {
  const auto step = progress_.step;
  const auto logs = step % options_.log_every == 0 || step == last_step_;
  const auto saves = options_.save_every > 0 && step % options_.save_every == 0 && step < last_step_;
  const auto checks = options_.check_every > 0 && step % options_.check_every == 0;
  auto settled = settle(logs || saves || checks || device_.host_reads_it() ? 0 : 1);
  if (!settled) return settled;
  if (checks) {
    auto same = check_parameters(collective_, device_, network_->parameters(), spec_.parameter_count);
    if (!same) return std::move(same).error().under("step " + std::to_string(step));
  }
  if (saves) {
    auto saved = keeper_->save(progress_);
    if (!saved) return saved;
  }
  if (!leads()) return {};
  if (logs) {
    auto line = metrics_.line(step, progress_.epoch, loss_, schedule_.at(step - 1));
    say(line.json());
  }
  const auto& lines = metrics_.lines();
  bar_.draw(step, last_step_, loss_, lines.empty() ? 0 : lines.back().images_per_second);
  return {};
}

Result<> Training::evaluate_now() {
  if (evaluated_ || data_.test.size() == 0) return {};
  auto result = evaluate(collective_, device_, *network_, data_, test_batch_, options_.loader);
  if (!result) return std::move(result).error().under("evaluation");
  evaluation_ = *result;
  evaluated_ = true;
  if (leads() && progress_.step < last_step_) {
    say(nlohmann::json{{"step", progress_.step},
                       {"epoch", progress_.epoch},
                       {"test_accuracy", evaluation_.accuracy},
                       {"test_loss", evaluation_.loss}}
            .dump());
  }
  return {};
}

void Training::say(const std::string& line) {
  bar_.wipe();
  if ((std::printf("%s\n", line.c_str()) < 0 || std::fflush(stdout) != 0) && !unsaid_) {
    unsaid_ = dlaunch::last_error("writing to stdout");
  }
}

Result<> Training::conclude() {
  if (!leads()) return {};
  if (stopped_) {
    say("stopped at step " + std::to_string(progress_.step) + " by " +
        (stop_signal() ? "a signal" : "another rank's signal") +
        (options_.save.empty() ? "; nothing saved without --save" : "; saved in " + options_.save));
    return {};
  }
  Result<> drawn;
  if (!options_.plot.empty()) {
    drawn = write_plot(options_.plot, metrics_.lines(), spec_.name + ", " + session_.choice);
    if (!drawn) drawn = std::move(drawn).error().under("--plot");
  }
  if (progress_.step > 0 && !metrics_.lines().empty()) say(metrics_.held_back_by());
  if (data_.test.size() > 0) {
    char text[32];
    std::snprintf(text, sizeof text, "%.4f", evaluation_.accuracy);
    say(std::string("test accuracy: ") + text);
  }
  if (options_.digest) {
    auto values = keeper_->parameters();
    if (!values) return std::move(values).error();
    say("digest: " + digest_of(*values));
  }
  if (unsaid_) return *unsaid_;
  return drawn;
}

}  // namespace trainer
