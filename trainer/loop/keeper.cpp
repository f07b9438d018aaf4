#include "trainer/loop/keeper.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <span>

namespace trainer {
namespace {

// How rank 0's progress travels.
using Packed = std::array<std::int64_t, 7>;
Packed pack(const Checkpoint& checkpoint, bool good) {
  const auto& p = checkpoint.progress;
  return {good,
          p.step,
          p.epoch,
          p.epoch_samples,
          std::int64_t(p.seed),
          p.optimizer_steps,
          std::int64_t(checkpoint.slots.size())};
}
void unpack(const Packed& packed, Progress& p) {
  p.step = packed[1];
  p.epoch = packed[2];
  p.epoch_samples = packed[3];
  p.seed = std::uint64_t(packed[4]);
  p.optimizer_steps = packed[5];
}

}  // namespace

Result<std::vector<float>> Keeper::fetch(const float* data) {
  std::vector<float> values(count());
  device_.download(values.data(), data, values.size() * sizeof(float));
  auto there = device_.synchronize();
  if (!there) return std::move(there).error();
  return values;
}

Result<std::vector<float>> Keeper::parameters() { return fetch(network_.parameters()); }

// What nobody could go on with is not kept, least of all in place of what one could.
Result<std::vector<float>> Keeper::finite_parameters() {
  auto values = parameters();
  if (!values || std::all_of(values->begin(), values->end(), [](float x) { return std::isfinite(x); }))
    return values;
  return Error{Errc::failed, "the parameters are not finite any more; they are not saved",
               "try a smaller --lr or --clip"};
}

Result<Checkpoint> Keeper::find(std::vector<std::string>& told) {
  const auto& spec = network_.spec();
  Checkpoint fresh;
  fresh.progress.seed = options_.seed;
  if (!options_.resume.empty()) {
    if (options_.resume != "auto") {
      auto read = read_checkpoint(options_.resume, spec);
      if (!read) return std::move(read).error().under("--resume");
      told.push_back("continues at step " + std::to_string(read->progress.step) + " of " + options_.resume);
      return read;
    }
    std::vector<std::string> passed_over;
    auto newest = CheckpointFolder(options_.save, options_.keep).newest(spec, passed_over);
    for (auto& text : passed_over) told.push_back("passed over " + text);
    if (!newest) return std::move(newest).error().under("--resume auto");
    if (*newest) {
      told.push_back("continues at step " + std::to_string((*newest)->progress.step) + " of " +
                     options_.save);
      return std::move(**newest);
    }
  }
  if (!options_.init_weights.empty()) {
    auto weights = read_weights(options_.init_weights, spec);
    if (!weights) return std::move(weights).error().under("--init");
    fresh.parameters = std::move(*weights);
  } else {
    fresh.parameters = initial_parameters(spec, options_.seed);
  }
  return fresh;
}

Result<Progress> Keeper::begin(std::vector<std::string>& told) {
  if (collective_.rank() == 0 && !options_.save.empty()) {
    std::error_code failed;
    std::filesystem::create_directories(options_.save, failed);
    if (failed)
      return Error{Errc::usage, "--save " + options_.save + ": " + failed.message(),
                   "give a folder that can be made"};
  }
  Checkpoint state;
  bool good = true;
  Error why;
  if (collective_.rank() == 0) {
    auto found = find(told);
    if (found && !found->slots.empty() && found->progress.optimizer != options_.optimizer.name) {
      found = Error{Errc::usage, "the checkpoint was made with --optimizer " + found->progress.optimizer +
                                     ", not " + options_.optimizer.name};
    }
    if (found && !found->progress.optimizer.empty() && found->progress.seed != options_.seed) {
      found =
          Error{Errc::usage, "the checkpoint was made with --seed " + std::to_string(found->progress.seed) +
                                 ", not " + std::to_string(options_.seed)};
    }
    good = bool(found);
    if (good) {
      state = std::move(*found);
    } else {
      why = std::move(found).error();
    }
  }
  auto packed = pack(state, good);
  auto shared = collective_.broadcast(std::as_writable_bytes(std::span(packed)), 0);
  if (!shared) return std::move(shared).error();
  if (!packed[0]) {
    return collective_.rank() == 0 ? why
                                   : Error{Errc::usage, "rank 0 has no state to begin with; see its message"};
  }
  unpack(packed, state.progress);
  state.parameters.resize(count());
  shared = collective_.broadcast(std::as_writable_bytes(std::span(state.parameters)), 0);
  if (!shared) return std::move(shared).error();
  state.slots.resize(std::size_t(packed[6]));
  for (auto& slot : state.slots) {
    slot.values.resize(count());
    shared = collective_.broadcast(std::as_writable_bytes(std::span(slot.values)), 0);
    if (!shared) return std::move(shared).error();
  }
  auto set = put(state);
  if (!set) return std::move(set).error();
  return state.progress;
}

Result<> Keeper::put(const Checkpoint& checkpoint) {
  auto bytes = count() * sizeof(float);
  device_.upload(network_.parameters(), checkpoint.parameters.data(), bytes);
  auto slots = optimizer_.slots();
  if (!checkpoint.slots.empty() && checkpoint.slots.size() != slots.size()) {
    return Error{Errc::usage,
                 "the checkpoint has " + std::to_string(checkpoint.slots.size()) +
                     " buffers of the optimizer, this run needs " + std::to_string(slots.size()),
                 "give the same --optimizer and --momentum as the first time"};
  }
  for (std::size_t i = 0; i < checkpoint.slots.size(); ++i) {
    device_.upload(slots[i].data, checkpoint.slots[i].values.data(), bytes);
  }
  optimizer_.set_steps(checkpoint.progress.optimizer_steps);
  return device_.synchronize();
}

Result<> Keeper::save(Progress progress) {
  if (options_.save.empty() || collective_.rank() != 0) return {};
  Checkpoint checkpoint;
  progress.optimizer_steps = optimizer_.steps();
  progress.optimizer = options_.optimizer.name;
  progress.seed = options_.seed;
  progress.world_size = collective_.size();
  progress.reduce = options_.reduction == Reduction::tree ? "tree" : "fast";
  checkpoint.progress = progress;
  auto values = finite_parameters();
  if (!values) return std::move(values).error();
  checkpoint.parameters = std::move(*values);
  for (const auto& slot : optimizer_.slots()) {
    auto buffer = fetch(slot.data);
    if (!buffer) return std::move(buffer).error();
    checkpoint.slots.push_back({slot.name, std::move(*buffer)});
  }
  auto saved = CheckpointFolder(options_.save, options_.keep).save(network_.spec(), checkpoint);
  if (!saved) return std::move(saved).error().under("--save");
  return {};
}

Result<> Keeper::save_model() {
  // save() has written it into --save's folder already.
  if (!options_.save_model || !options_.save.empty() || collective_.rank() != 0) return {};
  auto values = finite_parameters();
  if (!values) return std::move(values).error();
  auto written = write_weights("model.safetensors", network_.spec(), *values);
  if (!written) return std::move(written).error().under("--save-model");
  return {};
}

}  // namespace trainer
