#include "trainer/collective/gloo/gloo_collective.hpp"

#include <gloo/allgather.h>
#include <gloo/allreduce.h>
#include <gloo/barrier.h>
#include <gloo/broadcast.h>
#include <gloo/math.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/store.h>
#include <gloo/transport/tcp/device.h>
#include <sched.h>

#include <algorithm>
#include <bit>
#include <cstdio>
#include <stdexcept>
#include <thread>

#include "trainer/collective/rank_names.hpp"

namespace trainer {
namespace {

using Clock = std::chrono::steady_clock;

// How long the others get to say that they fail as well, before they are taken for the cause: they see a
// closed connection within milliseconds, but their time-outs began at different moments.
constexpr Milliseconds kAfterClose{500};
constexpr Milliseconds kAfterTimeout{2000};
constexpr Milliseconds kPoll{20};

// Messages up to this size are sent whole; above, each of two ranks adds up one half.
constexpr std::size_t kSmall = 8192;  // floats

class GlooStore : public gloo::rendezvous::Store {
 public:
  GlooStore(Rendezvous& rendezvous, Milliseconds limit) : rendezvous_(rendezvous), limit_(limit) {}

  void set(const std::string& key, const std::vector<char>& data) override {
    auto done = rendezvous_.set("gloo/" + key, std::string(data.begin(), data.end()));
    if (!done) throw std::runtime_error(done.error().text);
  }
  std::vector<char> get(const std::string& key) override {
    auto value = rendezvous_.get("gloo/" + key, limit_);
    if (!value) throw std::runtime_error(value.error().text);
    return {value->begin(), value->end()};
  }
  void wait(const std::vector<std::string>& keys) override { wait(keys, limit_); }
  void wait(const std::vector<std::string>& keys, const std::chrono::milliseconds& limit) override {
    for (const auto& key : keys) {
      auto value = rendezvous_.get("gloo/" + key, limit);
      if (!value) throw std::runtime_error(value.error().text);
    }
  }

 private:
  Rendezvous& rendezvous_;
  Milliseconds limit_;
};

std::string size_text(std::size_t bytes) {
  char text[32];
  if (bytes >= 1'000'000) {
    std::snprintf(text, sizeof text, "%.1f MB", double(bytes) / 1e6);
  } else {
    std::snprintf(text, sizeof text, "%zu bytes", bytes);
  }
  return text;
}

// Gloo's thread reads what comes, and spins as long as a rank's own thread holds the lock of a connection.
// Where ranks share cores, it would do so for whole time slices in place of that very thread, which it has
// just preempted. A thread of class batch preempts nobody: an all-reduce of two ranks on two cores then takes
// half the time. A thread takes its class from whoever makes it, which is what this object is for.
class BatchClass {
 public:
  BatchClass()
      : taken_(::sched_getscheduler(0) == SCHED_OTHER && ::sched_setscheduler(0, SCHED_BATCH, &kNone) == 0) {}
  BatchClass(const BatchClass&) = delete;
  ~BatchClass() {
    if (taken_) (void)::sched_setscheduler(0, SCHED_OTHER, &kNone);
  }

 private:
  static constexpr sched_param kNone{};
  const bool taken_;
};

std::shared_ptr<gloo::transport::Device> make_device(const gloo::transport::tcp::attr& attributes) {
  const BatchClass inherited;
  return gloo::transport::tcp::CreateDevice(attributes);
}

void add(float* __restrict to, const float* __restrict from, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) to[i] += from[i];
}

}  // namespace

Result<std::unique_ptr<Collective>> GlooCollective::connect(const GroupOptions& options,
                                                            Rendezvous& rendezvous) {
  std::unique_ptr<GlooCollective> group(new GlooCollective(options, rendezvous));
  try {
    gloo::transport::tcp::attr attributes;
    attributes.hostname = options.address;
    auto device = make_device(attributes);
    auto context = std::make_shared<gloo::rendezvous::Context>(options.rank, options.size);
    context->setTimeout(options.timeout);
    GlooStore store(rendezvous, options.timeout);
    context->connectFullMesh(store, device);
    group->context_ = context;
  } catch (const std::exception& error) {
    return Error{Errc::failed,
                 "Gloo cannot connect the ranks (this one at " + options.address + "): " + error.what(),
                 "GLOO_SOCKET_IFNAME chooses the interface"};
  }
  auto agreed = group->find_room();
  if (!agreed) return std::move(agreed).error();
  return std::unique_ptr<Collective>(std::move(group));
}

// All ranks use the room, or none.
Result<> GlooCollective::find_room() {
  std::string place;
  if (rank() == 0) {
    if (options_.shared_memory) {
      auto room = SharedRoom::make(size(), place);
      if (room) room_ = std::move(*room);
    }
    auto told = rendezvous_.set("room", room_ ? place : "none");
    if (!told) return told;
  } else {
    auto told = rendezvous_.get("room", options_.timeout);
    if (!told) return std::move(told).error();
    if (*told != "none") {
      auto room = SharedRoom::enter(rank(), size(), *told);
      if (room) room_ = std::move(*room);
    }
  }
  std::int64_t inside = room_ ? 1 : 0;
  auto counted = all_reduce(std::span<std::int64_t>(&inside, 1));
  if (inside != size()) room_.reset();
  number_ = 0;  // the caller's first collective is number 1
  return counted;
}

void GlooCollective::sum_in_room(std::span<float> values) {
  switch (room_->all_reduce(values, options_.timeout, [this] { return !without_connection().empty(); })) {
    case SharedRoom::End::good:
      return;
    case SharedRoom::End::timed_out:
      throw std::runtime_error("Timed out in shared memory");
    case SharedRoom::End::peer_gone:
      throw std::runtime_error("Connection closed by peer");
  }
}

Result<> GlooCollective::run(const std::string& name, std::optional<std::size_t> bytes,
                             const std::function<void()>& work) {
  if (broken_) return *broken_;
  if (bytes == 0) return {};  // the same for all ranks
  ++number_;
  try {
    work();
    return {};
  } catch (const std::exception& error) {
    auto what =
        "collective " + std::to_string(number_) + ", " + name + (bytes ? " of " + size_text(*bytes) : "");
    broken_ = blame(what, error.what());
    return *broken_;
  }
}

// A rank that fails says so, so that it is not taken for the cause when it leaves; who says nothing is the
// cause.
Error GlooCollective::blame(const std::string& what, const std::string& thrown) {
  (void)rendezvous_.set("failed/" + std::to_string(rank()), what);
  const auto timed_out = thrown.find("Timed out") != std::string::npos;
  if (!timed_out) {
    auto gone = without_connection();
    // Where the store is gone as well, nobody can be cleared.
    gone = without_word(gone, kAfterClose).value_or(gone);
    if (!gone.empty())
      return Error{Errc::unreachable, rank_names(gone) + " closed its connection (" + what + ")"};
  }
  std::vector<int> others;
  for (int peer = 0; peer < size(); ++peer) {
    if (peer != rank()) others.push_back(peer);
  }
  const auto code = timed_out ? Errc::timed_out : Errc::unreachable;
  auto heard = without_word(others, kAfterTimeout);
  const auto server = rendezvous_.served_by();
  if (!heard && server && *server != rank()) heard = {*server};
  if (!heard && others.size() > 1) {
    return Error{code,
                 "a peer is gone or silent, and the store does not answer either (" + what + "): " + thrown};
  }
  auto silent = heard.value_or(others);  // of two ranks it is the other
  if (silent.empty()) return Error{code, "all ranks are there, but one of them failed first (" + what + ")"};
  auto seconds = std::to_string(double(options_.timeout.count()) / 1000);
  seconds.erase(seconds.find_last_not_of('0') + 1);
  if (seconds.back() == '.') seconds.pop_back();
  return Error{code, rank_names(silent) + (silent.size() == 1 ? " is" : " are") + " silent" +
                         (timed_out ? " for " + seconds + " s" : "") + " (" + what + ")"};
}

// Asks every connection to take one byte: one that is closed refuses.
std::vector<int> GlooCollective::without_connection() {
  std::vector<int> gone;
  for (int peer = 0; peer < size(); ++peer) {
    if (peer == rank()) continue;
    char byte = 0;
    try {
      auto buffer = context_->createUnboundBuffer(&byte, 1);
      buffer->send(peer, (std::uint64_t(0x41) << 56) | number_);
      buffer->abortWaitSend();
    } catch (const std::exception&) {
      gone.push_back(peer);
    }
  }
  return gone;
}

std::optional<std::vector<int>> GlooCollective::without_word(const std::vector<int>& peers,
                                                             Milliseconds limit) {
  auto silent = peers;
  for (auto deadline = Clock::now() + limit; !silent.empty();) {
    bool readable = true;
    std::erase_if(silent, [&](int peer) {
      auto said = rendezvous_.has("failed/" + std::to_string(peer));
      readable = readable && said;
      return said && *said;
    });
    if (!readable) return std::nullopt;
    if (Clock::now() >= deadline) break;
    std::this_thread::sleep_for(kPoll);
  }
  return silent;
}

template <class T>
void GlooCollective::ring(std::span<T> values) {
  gloo::AllreduceOptions options(context_);
  options.setOutput(values.data(), values.size());
  options.setAlgorithm(gloo::AllreduceOptions::Algorithm::RING);
  void (*sum)(void*, const void*, const void*, std::size_t) = &gloo::sum<T>;
  options.setReduceFunction(sum);
  gloo::allreduce(options);
}

void GlooCollective::exchange(int peer, std::span<const float> out, std::span<float> in) {
  auto slot = (std::uint64_t(0x40) << 56) | ++messages_;
  // Gloo only reads what is sent.
  auto sent = context_->createUnboundBuffer(const_cast<float*>(out.data()), out.size_bytes());
  auto received = context_->createUnboundBuffer(in.data(), in.size_bytes());
  received->recv(peer, slot);
  sent->send(peer, slot);
  received->waitRecv(options_.timeout);
  sent->waitSend(options_.timeout);
}

// Recursive doubling: after round i each rank holds the sum of its 2^(i+1) neighbours. The two of a pair add
// the same two numbers, and addition commutes, so they get the same bits.
void GlooCollective::tree(std::span<float> values) {
  received_.resize(values.size());
  for (int distance = 1; distance < size(); distance *= 2) {
    exchange(rank() ^ distance, values, received_);
    add(values.data(), received_.data(), values.size());
  }
}

// Two ranks need no ring: each adds up one half and sends it back.
void GlooCollective::pairwise(std::span<float> values) {
  if (values.size() <= kSmall) return tree(values);
  auto half = values.size() / 2;
  auto mine = rank() == 0 ? values.first(half) : values.subspan(half);
  auto others = rank() == 0 ? values.subspan(half) : values.first(half);
  received_.resize(mine.size());
  exchange(1 - rank(), others, received_);
  add(mine.data(), received_.data(), mine.size());
  exchange(1 - rank(), mine, others);
}

Result<> GlooCollective::all_reduce(std::span<float> values, Reduction reduction) {
  if (reduction == Reduction::tree && !std::has_single_bit(unsigned(size()))) {
    return Error{Errc::usage,
                 "the tree reduction needs a power of two of ranks, not " + std::to_string(size())};
  }
  return run("all-reduce", values.size_bytes(), [&] {
    if (room_) return sum_in_room(values);
    if (reduction == Reduction::tree) return tree(values);
    if (size() == 2) return pairwise(values);
    ring(values);
  });
}

Result<> GlooCollective::all_reduce(std::span<double> values) {
  return run("all-reduce", values.size_bytes(), [&] { ring(values); });
}

Result<> GlooCollective::all_reduce(std::span<std::int64_t> values) {
  return run("all-reduce", values.size_bytes(), [&] { ring(values); });
}

Result<> GlooCollective::broadcast(std::span<std::byte> bytes, int root) {
  return run("broadcast", bytes.size(), [&] {
    gloo::BroadcastOptions options(context_);
    options.setOutput(reinterpret_cast<std::uint8_t*>(bytes.data()), bytes.size());
    options.setRoot(root);
    gloo::broadcast(options);
  });
}

Result<> GlooCollective::all_gather(std::span<const std::byte> mine, std::span<std::byte> all) {
  if (all.size() != mine.size() * std::size_t(size())) {
    return Error{Errc::usage, "all-gather: room for " + std::to_string(all.size()) + " bytes, not " +
                                  std::to_string(mine.size() * std::size_t(size()))};
  }
  return run("all-gather", all.size(), [&] {
    gloo::AllgatherOptions options(context_);
    options.setInput(reinterpret_cast<std::uint8_t*>(const_cast<std::byte*>(mine.data())), mine.size());
    options.setOutput(reinterpret_cast<std::uint8_t*>(all.data()), all.size());
    gloo::allgather(options);
  });
}

Result<> GlooCollective::barrier() {
  return run("barrier", std::nullopt, [&] {
    gloo::BarrierOptions options(context_);
    gloo::barrier(options);
  });
}

}  // namespace trainer
