// One process that trains on several devices, as torch.nn.DataParallel does: at every pass the batch is
// scattered from the first device, the parameters are replicated, the logits are gathered and the loss is
// computed on one device, and the gradients are added up on the first. For comparison with a process per
// device, which is better.
#pragma once

#include <memory>
#include <vector>

#include "trainer/data/loader.hpp"
#include "trainer/device/device.hpp"
#include "trainer/model/network.hpp"
#include "trainer/parallel/crew.hpp"

namespace trainer {

// How a batch is cut, as torch.chunk does: equal parts, rounded up, the last smaller or missing. Pure.
std::vector<int> scatter_sizes(int batch, int parts);

class DataParallel {
 public:
  // `home` with its network is the first device; `others` the rest. `output`: index into both together of the
  // device that computes the loss. `home` and `master` outlive this.
  static Result<std::unique_ptr<DataParallel>> create(Device& home, Network& master,
                                                      std::vector<std::unique_ptr<Device>> others, int output,
                                                      int largest_batch);

  // One forward and backward. `batch`, `gradients` and `loss` are memory of the first device; gradients are
  // laid out as the parameters; loss and gradients are scaled by `scale`, and the loss is added to *loss. The
  // mark is of the first device: the loss is behind it, backward before it.
  Result<Mark> pass(const Batch& batch, float* gradients, float* loss, float scale, bool accumulate);

  // Of each device, the first one first.
  std::vector<Device*> devices() const;

 private:
  struct Replica;  // in data_parallel.cpp

 public:
  ~DataParallel();

 private:
  DataParallel(int size, int output);

  std::vector<std::unique_ptr<Device>> owned_;
  std::vector<std::unique_ptr<Replica>> replicas_;
  int output_;
  Memory logits_, logits_gradient_, labels_, loss_;  // of the output device
  Memory scratch_;                                   // of the first device: another's gradients
  Crew crew_;
};

}  // namespace trainer
