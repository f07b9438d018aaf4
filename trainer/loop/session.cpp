#include "trainer/loop/session.hpp"

#include <cstdio>
#include <map>

#include "trainer/device/cpu/cpu_device.hpp"

namespace trainer {
namespace {

// Why no GPU is used; empty if one can be.
std::string no_gpu(const Options& options) {
  if (options.no_cuda) return "--no-cuda";
  auto module = cuda_module();
  if (!module) return module.error().text;
  auto count = (*module)->device_count();
  if (!count) return count.error().text;
  return *count > 0 ? "" : "no GPU is visible";
}

Result<DeviceChoice> open_cpu(int index, std::string why) {
  auto module = host_module();
  if (module)
    return DeviceChoice{make_cpu_device(index, (*module)->gemm, (*module)->describe()), std::move(why)};
  return DeviceChoice{make_cpu_device(index, plain_gemm, "plain loops, slow: " + module.error().text),
                      std::move(why)};
}

// For a group of one, which --backend nccl makes.
class LocalRendezvous : public Rendezvous {
 public:
  Result<> set(const std::string& key, const std::string& value) override {
    values_[key] = value;
    return {};
  }
  Result<std::string> get(const std::string& key, Milliseconds) override { return values_[key]; }
  Result<bool> has(const std::string& key) override { return values_.contains(key); }

 private:
  std::map<std::string, std::string> values_;
};

// Two ranks with one GPU between them, as "ranks 0 and 1 share GPU …"; empty if there are none. Every rank
// asks.
Result<std::string> shared_gpu(const Device& device, const Place& place, Rendezvous& rendezvous,
                               Milliseconds limit) {
  auto told = rendezvous.set("device/" + std::to_string(place.rank), device.unique_id());
  if (!told) return std::move(told).error();
  std::map<std::string, int> seen;
  for (int rank = 0; rank < place.world_size; ++rank) {
    auto id = rendezvous.get("device/" + std::to_string(rank), limit);
    if (!id) return std::move(id).error();
    auto [known, is_new] = seen.emplace(*id, rank);
    if (!is_new && !id->empty()) {
      return "ranks " + std::to_string(known->second) + " and " + std::to_string(rank) + " share one GPU (" +
             *id + ")";
    }
  }
  return std::string();
}

Result<std::unique_ptr<Collective>> make_gloo(const GroupOptions& group, Rendezvous& rendezvous) {
  auto module = host_module();
  if (!module) {
    return Error{Errc::not_found, "a group without NCCL needs train_host.so: " + module.error().text,
                 "build it with libgloo-dev and libopenblas-dev installed"};
  }
  return (*module)->make_gloo(group, rendezvous);
}

Result<std::unique_ptr<Collective>> make_nccl(Device& device, const GroupOptions& group,
                                              Rendezvous& rendezvous) {
  auto module = cuda_module();
  if (!module) return std::move(module).error();
  if (group.rank == 0) {
    auto id = (*module)->nccl_id();
    if (!id) return std::move(id).error();
    auto told = rendezvous.set("nccl_id", *id);
    if (!told) return std::move(told).error();
  }
  auto id = rendezvous.get("nccl_id", group.timeout);
  if (!id) return std::move(id).error().under("NCCL's id");
  return (*module)->make_nccl(device, *id, group, rendezvous);
}

struct Group {
  std::unique_ptr<Collective> collective;
  std::string why;
};

// `rendezvous` is made if there is none and NCCL needs one.
Result<Group> make_group(const Options& options, const Place& place, const std::string& address,
                         Device& device, std::unique_ptr<Rendezvous>& rendezvous) {
  if (place.world_size == 1) {
    if (options.backend != "nccl") return Group{make_local_collective(), ""};
    rendezvous = std::make_unique<LocalRendezvous>();
  }
  GroupOptions group{place.rank, place.world_size, address, options.collective_timeout,
                     !options.no_shared_memory};
  std::string why;
  auto gpu = device.kind() == DeviceKind::cuda;
  if (gpu && options.backend != "gloo") {
    auto shared = shared_gpu(device, place, *rendezvous, options.init.timeout);
    if (!shared) return std::move(shared).error();
    if (shared->empty() && options.reduction == Reduction::fast) {
      auto nccl = make_nccl(device, group, *rendezvous);
      if (!nccl) return std::move(nccl).error();
      return Group{std::move(*nccl), ""};
    }
    why = shared->empty() ? "NCCL does not add in a fixed tree (--reduce=tree)"
                          : *shared + ", which NCCL refuses";
    if (options.backend == "nccl") {
      return Error{
          Errc::usage, "--backend nccl: " + why,
          shared->empty() ? "use --reduce=fast or --backend gloo" : "one rank per GPU, or --backend gloo"};
    }
  }
  auto gloo = make_gloo(group, *rendezvous);
  if (!gloo) return std::move(gloo).error();
  return Group{std::move(*gloo), why};
}

}  // namespace

int gpu_count(const Options& options) {
  if (!no_gpu(options).empty()) return 0;
  return *(*cuda_module())->device_count();
}

Result<DeviceChoice> open_device(const Options& options, int index) {
  auto why = no_gpu(options);
  if (!why.empty()) {
    if (options.backend == "nccl") {
      return Error{Errc::usage, "--backend nccl: no GPU to use: " + why, "use --backend gloo, or auto"};
    }
    return open_cpu(index, why);
  }
  auto device = (*cuda_module())->open_device(index);
  if (!device) return std::move(device).error();
  return DeviceChoice{std::move(*device), ""};
}

Result<Session> open_session(const Options& options, const Place& place,
                             const dlaunch::Environment& environment) {
  auto gpus = gpu_count(options);
  auto index = gpus > 0 ? place.local_rank % gpus : place.local_rank;
  if (options.mode == "dp" && !options.device_ids.empty()) index = options.device_ids[0];
  auto choice = open_device(options, index);
  if (!choice) return std::move(choice).error();

  Session session;
  session.device = std::move(choice->device);
  auto member = join(options.init, place, environment,
                     [](const std::string& text) { std::fprintf(stderr, "train: %s\n", text.c_str()); });
  if (!member) return std::move(member).error();
  session.place = place;
  session.rendezvous = std::move(member->rendezvous);
  auto group = make_group(options, session.place, member->address, *session.device, session.rendezvous);
  if (!group) return std::move(group).error();
  session.collective = std::move(group->collective);

  auto ranks = session.place.world_size == 1 ? "1 rank" : std::to_string(session.place.world_size) + " ranks";
  session.choice = ranks + " on " + session.device->name() + " (" + session.device->description() + "), " +
                   session.collective->backend();
  for (const auto& why : {choice->why, group->why}) {
    if (!why.empty()) session.choice += "; " + why;
  }
  return session;
}

Result<std::unique_ptr<Reducer>> make_reducer(Device& device, Collective& collective, float* gradients,
                                              std::vector<Bucket> buckets, Reduction reduction) {
  if (collective.backend() == "nccl") {
    return (*cuda_module())->make_nccl_reducer(collective, device, gradients, std::move(buckets));
  }
  return make_host_reducer(device, collective, gradients, std::move(buckets), reduction);
}

}  // namespace trainer
