#include "trainer/collective/nccl/nccl_group.hpp"

#include <algorithm>
#include <cstring>
#include <thread>
#include <vector>

namespace trainer::cuda {
namespace {

using namespace std::chrono;

constexpr std::size_t kStaging = 1u << 20;
constexpr milliseconds kLastWords{2000};  // for the others to leave theirs
constexpr milliseconds kAskEvery{250};    // whether another rank gave up
constexpr milliseconds kFarewell{2000};   // for an orderly end

const std::string kAnyFailed = "nccl/failed";
std::string failed_key(int rank) { return kAnyFailed + "/" + std::to_string(rank); }

milliseconds since(steady_clock::time_point start) {
  return duration_cast<milliseconds>(steady_clock::now() - start);
}

std::string words_of(ncclResult_t answer, ncclComm_t comm) {
  std::string text = ncclGetErrorString(answer);
  const char* last = ncclGetLastError(comm);
  if (last && *last) text += std::string(" (") + last + ")";
  return text;
}

}  // namespace

Result<std::string> nccl_id() {
  ncclUniqueId id{};
  if (const auto answer = ncclGetUniqueId(&id); answer != ncclSuccess) {
    return Error{Errc::failed, "ncclGetUniqueId: " + words_of(answer, nullptr)};
  }
  return std::string(id.internal, sizeof id.internal);
}

Result<std::unique_ptr<Collective>> make_nccl(Device& device, const std::string& id,
                                              const GroupOptions& options, Rendezvous& rendezvous) {
  if (device.kind() != DeviceKind::cuda) {
    return Error{Errc::usage, "NCCL needs a GPU, and this rank computes on " + device.name(),
                 "--backend gloo works on any device"};
  }
  auto group = NcclGroup::connect(static_cast<CudaDevice&>(device), id, options, rendezvous);
  if (!group) return group.error();
  return std::unique_ptr<Collective>(std::move(*group));
}

Result<std::unique_ptr<NcclGroup>> NcclGroup::connect(CudaDevice& device, const std::string& id,
                                                      const GroupOptions& options, Rendezvous& rendezvous) {
  std::unique_ptr<NcclGroup> group(new NcclGroup(device, options, rendezvous));
  if (auto ready = group->prepare(id); !ready) return ready.error();
  device.set_watch([group = group.get()](milliseconds waited) { return group->watch(waited); });
  return group;
}

Result<> NcclGroup::prepare(const std::string& id) {
  ncclUniqueId unique{};
  if (id.size() != sizeof unique.internal) {
    return Error{Errc::bad_frame, "NCCL's id has " + std::to_string(sizeof unique.internal) + " bytes, got " +
                                      std::to_string(id.size())};
  }
  std::memcpy(unique.internal, id.data(), id.size());
  device_.use();
  auto stream = Stream::create(/*urgent=*/true);
  if (!stream) return stream.error();
  stream_ = std::move(*stream);
  auto staged = Event::create(/*timed=*/false);
  if (!staged) return staged.error();
  staged_ = std::move(*staged);
  auto pinned = device_.allocate_host(kStaging);
  if (!pinned) return pinned.error();
  pinned_ = std::move(*pinned);
  auto buffer = device_.allocate(kStaging);
  if (!buffer) return buffer.error();
  buffer_ = std::move(*buffer);

  const std::lock_guard lock(mutex_);
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  device_.use();
  const auto answer = ncclCommInitRankConfig(&comm_, options_.size, unique, options_.rank, &config);
  return settle(answer, "ncclCommInitRank");
}

NcclGroup::~NcclGroup() {
  device_.set_watch({});
  device_.use();
  const std::lock_guard lock(mutex_);
  if (!comm_) return;
  forget_finished();
  // Peers may still be reading what this rank sent, so the end is orderly unless one of them is gone.
  ncclResult_t answer = flights_.empty() ? ncclCommFinalize(comm_) : ncclRemoteError;
  for (const auto start = steady_clock::now(); answer == ncclInProgress && since(start) < kFarewell;) {
    std::this_thread::sleep_for(50us);
    if (ncclCommGetAsyncError(comm_, &answer) != ncclSuccess) break;
  }
  answer == ncclSuccess ? ncclCommDestroy(comm_) : ncclCommAbort(comm_);
}

void NcclGroup::forget_finished() {
  while (!flights_.empty() && cudaEventQuery(flights_.front().done) == cudaSuccess) flights_.pop_front();
}

void NcclGroup::drain() {
  device_.use();
  const std::lock_guard lock(mutex_);
  for (const auto start = steady_clock::now(); !failure_ && comm_;) {
    forget_finished();
    if (flights_.empty() || !check(0ms)) return;
    if (since(start) >= kFarewell) {
      (void)give_up("left before the end");
      return;
    }
    std::this_thread::sleep_for(50us);
  }
}

Result<> NcclGroup::watch(Milliseconds waited) {
  const std::lock_guard lock(mutex_);
  return check(waited);
}

Result<> NcclGroup::check(Milliseconds waited) {
  if (failure_) return *failure_;
  if (!comm_) return {};
  ncclResult_t state = ncclSuccess;
  if (const auto answer = ncclCommGetAsyncError(comm_, &state); answer != ncclSuccess) state = answer;
  if (state != ncclSuccess && state != ncclInProgress) return give_up(words_of(state, comm_));
  forget_finished();
  if (flights_.empty() && state != ncclInProgress)
    return {};  // it is the device's own work that takes so long
  if (waited >= options_.timeout) {
    return give_up("no answer in " + std::to_string(options_.timeout.count()) + " ms");
  }
  if (options_.size > 1 && waited >= kAskEvery && since(asked_) >= kAskEvery) {
    const auto other = rendezvous_.has(kAnyFailed);
    asked_ = steady_clock::now();
    if (other && *other) return give_up("another rank gave up");
  }
  return {};
}

// A call on a non-blocking communicator is over when its state says so; until then nothing may follow it.
Result<> NcclGroup::settle(ncclResult_t answer, const char* call) {
  const auto start = steady_clock::now();
  while (answer == ncclInProgress) {
    if (auto fine = check(since(start)); !fine) return std::move(fine.error()).under(call);
    if (ncclCommGetAsyncError(comm_, &answer) != ncclSuccess) answer = ncclInternalError;
    if (answer == ncclInProgress && since(start) >= 1ms) std::this_thread::sleep_for(50us);
  }
  if (answer == ncclSuccess) return {};
  return give_up(words_of(answer, comm_)).under(call);
}

Error NcclGroup::give_up(const std::string& reason) {
  forget_finished();
  std::string where = "NCCL's start";
  if (number_ > 0) {
    const std::uint64_t number = flights_.empty() ? number_ : flights_.front().number;
    const std::string part = flights_.empty() ? "" : flights_.front().part;
    where = "collective " + std::to_string(number) + (part.empty() ? "" : " (" + part + ")");
  }
  // Without a rendezvous the others learn it from their own time-outs, so a failure here changes nothing.
  if (options_.size > 1) {
    (void)rendezvous_.set(failed_key(options_.rank), where);
    (void)rendezvous_.set(kAnyFailed, std::to_string(options_.rank));
  }
  if (comm_) ncclCommAbort(comm_);
  comm_ = nullptr;
  flights_.clear();

  const std::string silent = silent_ranks(steady_clock::now() + kLastWords);
  failure_ = Error{reason.starts_with("no answer") ? Errc::timed_out : Errc::unreachable,
                   silent.empty() ? "NCCL: " + reason + ", in " + where
                                  : silent + " silent since " + where + " (NCCL: " + reason + ")"};
  device_.fail(*failure_);
  return *failure_;
}

// "rank 2 is", "ranks 2 and 5 are", or nothing.
std::string NcclGroup::silent_ranks(steady_clock::time_point limit) {
  std::vector<int> silent;
  for (int other = 0; other < options_.size; ++other) {
    if (other == options_.rank) continue;
    const auto left = duration_cast<milliseconds>(limit - steady_clock::now());
    if (!rendezvous_.get(failed_key(other), std::max(left, 1ms))) silent.push_back(other);
  }
  if (silent.empty()) return {};
  std::string text = silent.size() == 1 ? "rank " : "ranks ";
  for (std::size_t i = 0; i < silent.size(); ++i) {
    if (i > 0) text += i + 1 == silent.size() ? " and " : ", ";
    text += std::to_string(silent[i]);
  }
  return text + (silent.size() == 1 ? " is" : " are");
}

Result<> NcclGroup::queue(std::string part, const Call& call, cudaEvent_t done) {
  device_.use();
  const std::lock_guard lock(mutex_);
  if (failure_) return *failure_;
  forget_finished();
  ++number_;
  const std::string name = "collective " + std::to_string(number_) + (part.empty() ? "" : " (" + part + ")");
  if (auto settled = settle(call(comm_, stream_.get()), name.c_str()); !settled) return settled;
  // Not before: until the call is settled it may not be on the stream.
  if (auto recorded = checked(cudaEventRecord(done, stream_.get()), "cudaEventRecord"); !recorded) {
    return recorded;
  }
  flights_.push_back({number_, std::move(part), done});
  return {};
}

Result<> NcclGroup::staged(std::size_t bytes, const std::function<void(std::byte*)>& fill, const Call& call,
                           const std::function<void(const std::byte*)>& take) {
  auto* host = static_cast<std::byte*>(pinned_.data());
  device_.use();
  fill(host);
  device_.keep(cudaMemcpyAsync(buffer_.data(), host, bytes, cudaMemcpyHostToDevice, stream_.get()),
               "cudaMemcpy to the device");
  if (auto queued = queue("", call, staged_.get()); !queued) return queued;
  // Only pinned memory may be the target here: to any other the copy would wait for the peers, unwatched.
  device_.keep(cudaMemcpyAsync(host, buffer_.data(), bytes, cudaMemcpyDeviceToHost, stream_.get()),
               "cudaMemcpy to the host");
  device_.keep(cudaEventRecord(staged_.get(), stream_.get()), "cudaEventRecord");
  if (auto done = device_.wait_for(staged_.get()); !done) return done;
  take(host);
  return {};
}

template <class T>
Result<> NcclGroup::reduce_staged(std::span<T> values, ncclDataType_t type) {
  while (!values.empty()) {
    const auto part = values.first(std::min(values.size(), kStaging / sizeof(T)));
    auto done = staged(
        part.size_bytes(), [&](std::byte* host) { std::memcpy(host, part.data(), part.size_bytes()); },
        [&](ncclComm_t comm, cudaStream_t stream) {
          return ncclAllReduce(buffer_.data(), buffer_.data(), part.size(), type, ncclSum, comm, stream);
        },
        [&](const std::byte* host) { std::memcpy(part.data(), host, part.size_bytes()); });
    if (!done) return done;
    values = values.subspan(part.size());
  }
  return {};
}

Result<> NcclGroup::all_reduce(std::span<float> values, Reduction reduction) {
  if (reduction == Reduction::tree) {
    return Error{Errc::usage, "NCCL adds in an order of its own, not in a fixed tree",
                 "take --reduce=fast, or --backend gloo with --reduce=tree"};
  }
  return reduce_staged(values, ncclFloat32);
}

Result<> NcclGroup::all_reduce(std::span<double> values) { return reduce_staged(values, ncclFloat64); }
Result<> NcclGroup::all_reduce(std::span<std::int64_t> values) { return reduce_staged(values, ncclInt64); }

Result<> NcclGroup::broadcast(std::span<std::byte> bytes, int root) {
  if (root < 0 || root >= size()) {
    return Error{Errc::usage,
                 "there is no rank " + std::to_string(root) + " in a group of " + std::to_string(size())};
  }
  while (!bytes.empty()) {
    const auto part = bytes.first(std::min(bytes.size(), kStaging));
    auto done = staged(
        part.size(), [&](std::byte* host) { std::memcpy(host, part.data(), part.size()); },
        [&](ncclComm_t comm, cudaStream_t stream) {
          return ncclBroadcast(buffer_.data(), buffer_.data(), part.size(), ncclUint8, root, comm, stream);
        },
        [&](const std::byte* host) { std::memcpy(part.data(), host, part.size()); });
    if (!done) return done;
    bytes = bytes.subspan(part.size());
  }
  return {};
}

Result<> NcclGroup::all_gather(std::span<const std::byte> mine, std::span<std::byte> all) {
  const std::size_t ranks = std::size_t(size());
  if (all.size() != mine.size() * ranks) {
    return Error{Errc::usage, "all_gather: room for " + std::to_string(all.size()) + " bytes, " +
                                  std::to_string(ranks) + " ranks give " + std::to_string(mine.size()) +
                                  " each"};
  }
  const std::size_t most = kStaging / ranks;
  for (std::size_t at = 0; at < mine.size(); at += most) {
    const auto part = mine.subspan(at, std::min(most, mine.size() - at));
    const std::size_t place = part.size() * std::size_t(rank());  // NCCL's convention for in place
    auto done = staged(
        part.size() * ranks, [&](std::byte* host) { std::memcpy(host + place, part.data(), part.size()); },
        [&](ncclComm_t comm, cudaStream_t stream) {
          auto* buffer = static_cast<std::byte*>(buffer_.data());
          return ncclAllGather(buffer + place, buffer, part.size(), ncclUint8, comm, stream);
        },
        [&](const std::byte* host) {
          for (std::size_t r = 0; r < ranks; ++r) {
            std::memcpy(all.data() + r * mine.size() + at, host + r * part.size(), part.size());
          }
        });
    if (!done) return done;
  }
  return {};
}

Result<> NcclGroup::barrier() {
  float nothing = 0;
  return all_reduce(std::span(&nothing, 1), Reduction::fast);
}

}  // namespace trainer::cuda
