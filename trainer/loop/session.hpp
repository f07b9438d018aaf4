// What a rank works with: its place, its device and its group, chosen by what the machine has and the command
// line allows; and the sentence that says why it came out so.
#pragma once

#include <memory>
#include <string>

#include "trainer/collective/collective.hpp"
#include "trainer/device/device.hpp"
#include "trainer/loop/options.hpp"
#include "trainer/module/module.hpp"
#include "trainer/parallel/reducer.hpp"

namespace trainer {

struct Session {
  Place place;
  std::unique_ptr<Rendezvous> rendezvous;  // destroyed last: it may serve the other ranks
  std::unique_ptr<Device> device;
  std::unique_ptr<Collective> collective;
  std::string choice;  // "2 ranks on CPU (OpenBLAS …), Gloo: no NVIDIA driver"
};

// The one that suits the group: NCCL's, or the host's.
Result<std::unique_ptr<Reducer>> make_reducer(Device& device, Collective& collective, float* gradients,
                                              std::vector<Bucket> buckets, Reduction reduction);

// `place`: of this process, as place_of() has it.
Result<Session> open_session(const Options& options, const Place& place,
                             const dlaunch::Environment& environment);

// The device with this index of the kind that open_session() would choose.
struct DeviceChoice {
  std::unique_ptr<Device> device;
  std::string why;  // why the CPU, empty on a GPU
};
Result<DeviceChoice> open_device(const Options& options, int index);
// GPUs that may be used, 0 if none.
int gpu_count(const Options& options);

}  // namespace trainer
