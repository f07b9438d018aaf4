#include "trainer/checkpoint/checkpoint.hpp"

#include <algorithm>
#include <filesystem>
#include <functional>
#include <string_view>
#include <system_error>
#include <type_traits>
#include <utility>

#include "trainer/file/checksum.hpp"
#include "trainer/file/new_file.hpp"
#include "trainer/number.hpp"

namespace trainer {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kBefore = "checkpoint-";
constexpr std::string_view kAfter = ".safetensors";
constexpr auto kWeights = "model.safetensors";
constexpr auto kModel = "model";                        // metadata: ModelSpec::fingerprint
constexpr std::string_view kSlotPrefix = "optimizer/";  // no module of PyTorch has such a name

std::string checkpoint_name(std::int64_t step) {
  return std::string(kBefore) + std::to_string(step) + std::string(kAfter);
}

// The step of "checkpoint-<step>.safetensors".
std::optional<std::int64_t> step_of(std::string_view name) {
  if (!name.starts_with(kBefore) || !name.ends_with(kAfter) || name.size() < kBefore.size() + kAfter.size()) {
    return std::nullopt;
  }
  auto step =
      number_in<std::int64_t>(name.substr(kBefore.size(), name.size() - kBefore.size() - kAfter.size()));
  return step && checkpoint_name(*step) == name ? step : std::nullopt;
}

Error system_error(const std::string& call, const std::error_code& error) {
  return Error{Errc::failed, call + ": " + error.message()};
}

Result<std::vector<std::string>> names_in(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code error;
  fs::directory_iterator entry(folder, error);
  if (error == std::errc::no_such_file_or_directory) return names;
  for (; !error && entry != fs::directory_iterator(); entry.increment(error)) {
    names.push_back(entry->path().filename().string());
  }
  if (error) return system_error("read folder " + folder, error);
  return names;
}

// Newest first.
std::vector<std::int64_t> steps_in(const std::vector<std::string>& names) {
  std::vector<std::int64_t> steps;
  for (const auto& name : names) {
    if (auto step = step_of(name)) steps.push_back(*step);
  }
  std::sort(steps.begin(), steps.end(), std::greater<>());
  return steps;
}

// Did a save that was killed leave it?
bool is_leftover(const std::string& name) {
  auto file = name.substr(0, name.find(kAfter) + kAfter.size());
  return (file == kWeights || step_of(file)) && is_unfinished(name, file);
}

std::string shape_text(const auto& shape) {
  std::string text;
  for (auto size : shape) text += (text.empty() ? "" : "x") + std::to_string(size);
  return text.empty() ? "a single number" : text;
}

std::vector<Tensor> tensors_of(const ModelSpec& spec, const std::vector<float>& flat) {
  std::vector<Tensor> tensors;
  for (const auto& parameter : spec.parameters) {
    auto begin = flat.begin() + static_cast<std::ptrdiff_t>(parameter.offset);
    tensors.push_back({parameter.name,
                       {parameter.shape.begin(), parameter.shape.end()},
                       {begin, begin + static_cast<std::ptrdiff_t>(parameter.count)}});
  }
  return tensors;
}

Result<> check_size(const ModelSpec& spec, const std::vector<float>& flat, const std::string& what) {
  if (flat.size() == spec.parameter_count) return {};
  return Error{Errc::usage, what + " has " + std::to_string(flat.size()) + " numbers, the model " +
                                std::to_string(spec.parameter_count)};
}

// The flat buffer from the model's own tensors of the file.
Result<std::vector<float>> flat_of(const ModelSpec& spec, const TensorFile& file) {
  std::vector<float> flat(spec.parameter_count);
  for (const auto& parameter : spec.parameters) {
    const auto* tensor = file.find(parameter.name);
    if (!tensor) return Error{Errc::usage, "has no tensor '" + parameter.name + "'"};
    if (!std::equal(tensor->shape.begin(), tensor->shape.end(), parameter.shape.begin(),
                    parameter.shape.end())) {
      return Error{Errc::usage, "tensor '" + parameter.name + "' is " + shape_text(tensor->shape) +
                                    ", the model needs " + shape_text(parameter.shape)};
    }
    std::copy(tensor->values.begin(), tensor->values.end(),
              flat.begin() + static_cast<std::ptrdiff_t>(parameter.offset));
  }
  return flat;
}

std::map<std::string, std::string> metadata_of(const Progress& progress) {
  return {{"step", std::to_string(progress.step)},
          {"epoch", std::to_string(progress.epoch)},
          {"epoch_samples", std::to_string(progress.epoch_samples)},
          {"seed", std::to_string(progress.seed)},
          {"optimizer_steps", std::to_string(progress.optimizer_steps)},
          {"optimizer", progress.optimizer},
          {"world_size", std::to_string(progress.world_size)},
          {"reduce", progress.reduce}};
}

Result<Progress> progress_of(const std::map<std::string, std::string>& metadata) {
  Progress progress;
  std::string fault;
  auto text = [&](const std::string& key) {
    auto found = metadata.find(key);
    if (found == metadata.end()) fault = "no checkpoint: its metadata have no '" + key + "'";
    return found == metadata.end() ? std::string() : found->second;
  };
  auto number = [&](const std::string& key, auto& value) {
    auto written = text(key);
    auto parsed = number_in<std::remove_reference_t<decltype(value)>>(written);
    if (fault.empty() && (!parsed || *parsed < 0)) fault = key + " is '" + written + "'";
    value = parsed.value_or(0);
  };
  number("step", progress.step);
  number("epoch", progress.epoch);
  number("epoch_samples", progress.epoch_samples);
  number("seed", progress.seed);
  number("optimizer_steps", progress.optimizer_steps);
  number("world_size", progress.world_size);
  progress.optimizer = text("optimizer");
  progress.reduce = text("reduce");
  if (!fault.empty()) return Error{Errc::usage, fault};
  return progress;
}

// A checkpoint that is whole, before it is asked whether it fits.
struct Whole {
  TensorFile file;
  Progress progress;
  std::string model;
};

Result<Whole> read_whole(const std::string& path) {
  auto file = read_tensors(path);
  if (!file) return std::move(file).error();
  auto progress = progress_of(file->metadata);
  if (!progress) return std::move(progress).error().under(path);
  auto model = file->metadata.find(kModel);
  if (model == file->metadata.end() || file->metadata.count("xxh64") == 0) {
    return Error{Errc::usage, path + ": no checkpoint: it has no model or no checksum in its metadata"};
  }
  auto text = model->second;
  return Whole{std::move(*file), std::move(*progress), std::move(text)};
}

Result<Checkpoint> fit(Whole whole, const ModelSpec& spec) {
  if (whole.model != spec.fingerprint()) {
    return Error{Errc::usage, "is of the model " + whole.model + ", this run's is " + spec.fingerprint(),
                 "give the same --model, --hidden and --data as the first time"};
  }
  Checkpoint checkpoint;
  checkpoint.progress = std::move(whole.progress);
  auto parameters = flat_of(spec, whole.file);
  if (!parameters) return std::move(parameters).error();
  checkpoint.parameters = std::move(*parameters);
  for (auto& tensor : whole.file.tensors) {
    if (!tensor.name.starts_with(kSlotPrefix)) continue;
    auto good = check_size(spec, tensor.values, "tensor '" + tensor.name + "'");
    if (!good) return std::move(good).error();
    checkpoint.slots.push_back({tensor.name.substr(kSlotPrefix.size()), std::move(tensor.values)});
  }
  return checkpoint;
}

}  // namespace

Result<> CheckpointFolder::save(const ModelSpec& spec, const Checkpoint& checkpoint) {
  std::error_code error;
  fs::create_directories(folder_, error);
  if (error) return system_error("make folder " + folder_, error);
  auto found = names_in(folder_);
  if (!found) return std::move(found).error();

  auto good = check_size(spec, checkpoint.parameters, "the checkpoint");
  if (!good) return good;
  TensorFile file{tensors_of(spec, checkpoint.parameters), metadata_of(checkpoint.progress)};
  file.metadata[kModel] = spec.fingerprint();
  for (const auto& slot : checkpoint.slots) {
    good = check_size(spec, slot.values, "the optimizer's " + slot.name);
    if (!good) return good;
    file.tensors.push_back(
        {std::string(kSlotPrefix) + slot.name, {static_cast<std::int64_t>(slot.values.size())}, slot.values});
  }
  auto step = checkpoint.progress.step;
  auto written = write_tensors((fs::path(folder_) / checkpoint_name(step)).string(), file);
  if (!written) return written;
  written = write_weights((fs::path(folder_) / kWeights).string(), spec, checkpoint.parameters);
  if (!written) return written;

  // Only now that the new one is on the disk may old ones go. What cannot be removed costs room, no more.
  int others = 0;
  for (auto old : steps_in(*found)) {
    if (old != step && ++others >= keep_) fs::remove(fs::path(folder_) / checkpoint_name(old), error);
  }
  for (const auto& name : *found) {
    if (is_leftover(name)) fs::remove(fs::path(folder_) / name, error);
  }
  return {};
}

Result<std::optional<Checkpoint>> CheckpointFolder::newest(const ModelSpec& spec,
                                                           std::vector<std::string>& passed_over) {
  auto names = names_in(folder_);
  if (!names) return std::move(names).error();
  for (auto step : steps_in(*names)) {
    auto path = (fs::path(folder_) / checkpoint_name(step)).string();
    auto whole = read_whole(path);
    if (!whole) {
      passed_over.push_back(whole.error().text);
      continue;
    }
    // One of another model is no accident of the disk: to begin anew would lose what the user has.
    auto checkpoint = fit(std::move(*whole), spec);
    if (!checkpoint) return std::move(checkpoint).error().under(path);
    return std::optional(std::move(*checkpoint));
  }
  return std::optional<Checkpoint>();
}

Result<Checkpoint> read_checkpoint(const std::string& path, const ModelSpec& spec) {
  auto whole = read_whole(path);
  if (!whole) return std::move(whole).error();
  auto checkpoint = fit(std::move(*whole), spec);
  if (!checkpoint) return std::move(checkpoint).error().under(path);
  return checkpoint;
}

Result<> write_weights(const std::string& path, const ModelSpec& spec, const std::vector<float>& parameters) {
  auto good = check_size(spec, parameters, path);
  if (!good) return good;
  // "format" is what PyTorch's users of such files look for.
  return write_tensors(path,
                       {tensors_of(spec, parameters), {{"format", "pt"}, {kModel, spec.fingerprint()}}});
}

Result<std::vector<float>> read_weights(const std::string& path, const ModelSpec& spec) {
  auto file = read_tensors(path);
  if (!file) return std::move(file).error();
  for (const auto& tensor : file->tensors) {
    bool known = std::any_of(spec.parameters.begin(), spec.parameters.end(),
                             [&](const Parameter& parameter) { return parameter.name == tensor.name; });
    if (known) continue;
    std::string hint;
    if (tensor.name.starts_with(kSlotPrefix))
      hint = "this is a checkpoint: continue it with --resume " + path;
    return Error{Errc::usage, path + ": tensor '" + tensor.name + "' is none of the model's", hint};
  }
  auto flat = flat_of(spec, *file);
  if (!flat) return std::move(flat).error().under(path);
  return flat;
}

std::string digest_of(const std::vector<float>& parameters) {
  Checksum checksum;
  checksum.add(std::as_bytes(std::span(parameters)));
  return checksum.hex();
}

}  // namespace trainer
