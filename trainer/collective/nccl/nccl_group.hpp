// A group of ranks over NCCL, one GPU each. As a Collective it takes host memory, staged through a small
// buffer of pinned memory; NcclReducer queues its buckets here directly.
//
// NCCL never ends a wait for a peer by itself. So the communicator is made non-blocking, and whoever waits
// for the device asks watch(): an error that NCCL found, a collective in flight for longer than the group's
// time-out, or another rank's word that it gave up ends the group: the communicator is aborted, which frees
// the streams, and the ranks that do not leave a last word in the rendezvous within two seconds are named.
#pragma once

#include <nccl.h>

#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "trainer/collective/collective.hpp"
#include "trainer/device/cuda/cuda_device.hpp"

namespace trainer::cuda {

// For rank 0: 128 bytes that every rank connects by.
Result<std::string> nccl_id();

class NcclGroup : public Collective {
 public:
  // The arguments outlive the group; a group of one never asks the rendezvous. No thread may wait for the
  // device while the group is destroyed.
  static Result<std::unique_ptr<NcclGroup>> connect(CudaDevice& device, const std::string& id,
                                                    const GroupOptions& options, Rendezvous& rendezvous);
  ~NcclGroup() override;

  int rank() const override { return options_.rank; }
  int size() const override { return options_.size; }
  std::string backend() const override { return "nccl"; }
  Result<> all_reduce(std::span<float> values, Reduction reduction) override;
  Result<> all_reduce(std::span<double> values) override;
  Result<> all_reduce(std::span<std::int64_t> values) override;
  Result<> broadcast(std::span<std::byte> bytes, int root) override;
  Result<> all_gather(std::span<const std::byte> mine, std::span<std::byte> all) override;
  Result<> barrier() override;

  // Queues one collective on stream(), with `done` after it. `part` says what of it for messages ("bucket
  // 2"), and may be empty.
  using Call = std::function<ncclResult_t(ncclComm_t comm, cudaStream_t stream)>;
  Result<> queue(std::string part, const Call& call, cudaEvent_t done);
  cudaStream_t stream() const { return stream_.get(); }
  CudaDevice& device() const { return device_; }

  // Before `done` events or memory of queued collectives go: waits a little for these to end, and gives the
  // group up if they do not.
  void drain();

  // Is all well, for one who has waited for so long? Any thread.
  Result<> watch(Milliseconds waited);

 private:
  struct Flight {  // a collective that was queued and may not be over
    std::uint64_t number;
    std::string part;
    cudaEvent_t done;
  };

  NcclGroup(CudaDevice& device, const GroupOptions& options, Rendezvous& rendezvous)
      : device_(device), options_(options), rendezvous_(rendezvous) {}
  Result<> prepare(const std::string& id);
  Result<> check(Milliseconds waited);
  Result<> settle(ncclResult_t answer, const char* call);
  Error give_up(const std::string& reason);
  std::string silent_ranks(std::chrono::steady_clock::time_point limit);
  void forget_finished();
  template <class T>
  Result<> reduce_staged(std::span<T> values, ncclDataType_t type);
  // `fill` writes to the staging buffer and `take` reads from it, `bytes` of it in use.
  Result<> staged(std::size_t bytes, const std::function<void(std::byte*)>& fill, const Call& call,
                  const std::function<void(const std::byte*)>& take);

  CudaDevice& device_;
  GroupOptions options_;
  Rendezvous& rendezvous_;
  Stream stream_;
  Event staged_;
  Memory pinned_;
  Memory buffer_;

  std::mutex mutex_;  // of what follows
  ncclComm_t comm_ = nullptr;
  std::uint64_t number_ = 0;
  std::deque<Flight> flights_;
  std::chrono::steady_clock::time_point asked_;  // the rendezvous, for others' last words
  std::optional<Error> failure_;
};

Result<std::unique_ptr<Collective>> make_nccl(Device& device, const std::string& id,
                                              const GroupOptions& options, Rendezvous& rendezvous);

}  // namespace trainer::cuda
