// Brings a run's state to the disk and back: rank 0 reads and writes, the other ranks get it from rank 0.
#pragma once

#include <string>
#include <vector>

#include "trainer/checkpoint/checkpoint.hpp"
#include "trainer/collective/collective.hpp"
#include "trainer/device/device.hpp"
#include "trainer/loop/options.hpp"
#include "trainer/model/network.hpp"
#include "trainer/optimizer/optimizer.hpp"

namespace trainer {

class Keeper {
 public:
  // All arguments outlive the keeper.
  Keeper(const Options& options, Collective& collective, Device& device, Network& network,
         Optimizer& optimizer)
      : options_(options),
        collective_(collective),
        device_(device),
        network_(network),
        optimizer_(optimizer) {}

  // Every rank calls it: sets parameters and optimizer from --resume, --init or the seed, the same
  // everywhere. `told`: sentences about what was found, on rank 0.
  Result<Progress> begin(std::vector<std::string>& told);

  // Every rank may call it, rank 0 writes: a checkpoint and the weights, into --save's folder.
  Result<> save(Progress progress);
  // --save-model without --save: the weights, here. After the last save().
  Result<> save_model();

  Result<std::vector<float>> parameters();  // on the host

 private:
  Result<std::vector<float>> finite_parameters();
  Result<Checkpoint> find(std::vector<std::string>& told);
  Result<> put(const Checkpoint& checkpoint);
  Result<std::vector<float>> fetch(const float* data);
  std::size_t count() const { return network_.spec().parameter_count; }

  const Options& options_;
  Collective& collective_;
  Device& device_;
  Network& network_;
  Optimizer& optimizer_;
};

}  // namespace trainer
