// Everything that a run needs to go on where it was: parameters, the optimizer's buffers, and how far it has
// come. One safetensors file per checkpoint, DIR/checkpoint-<step>.safetensors, and the bare weights, which
// PyTorch loads, as DIR/model.safetensors. Rank 0 writes; every rank reads what rank 0 read, by broadcast.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "trainer/checkpoint/safetensors.hpp"
#include "trainer/model/spec.hpp"

namespace trainer {

struct Progress {
  std::int64_t step = 0;           // optimizer steps done
  std::int64_t epoch = 0;          // the one under way
  std::int64_t epoch_samples = 0;  // images of it that all ranks together have taken
  std::uint64_t seed = 0;
  std::int64_t optimizer_steps = 0;
  std::string optimizer;  // a resumed run must have the same
  int world_size = 1;     // for people
  std::string reduce;     // for people
};

struct Checkpoint {
  Progress progress;
  std::vector<float> parameters;  // flat, as ModelSpec has them
  struct Slot {
    std::string name;  // of Optimizer::Slot
    std::vector<float> values;
  };
  std::vector<Slot> slots;
};

class CheckpointFolder {
 public:
  // `keep`: that many newest checkpoints stay, at least 1.
  CheckpointFolder(std::string folder, int keep) : folder_(std::move(folder)), keep_(keep) {}

  Result<> save(const ModelSpec& spec, const Checkpoint& checkpoint);
  // The newest that is whole; each newer one that is not is told in `passed_over`. Nothing there: empty.
  Result<std::optional<Checkpoint>> newest(const ModelSpec& spec, std::vector<std::string>& passed_over);

 private:
  std::string folder_;
  int keep_;
};

Result<Checkpoint> read_checkpoint(const std::string& path, const ModelSpec& spec);

// Bare weights under PyTorch's names. A missing, additional or misshapen tensor is named.
Result<> write_weights(const std::string& path, const ModelSpec& spec, const std::vector<float>& parameters);
Result<std::vector<float>> read_weights(const std::string& path, const ModelSpec& spec);

// xxh64 of the parameters' bytes, as 16 hex digits.
std::string digest_of(const std::vector<float>& parameters);

}  // namespace trainer
