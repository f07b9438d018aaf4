// What the ranks of a group do together, on host memory. Every rank makes the same calls in the same order,
// one thread at a time. A call returns an Error when a peer is gone or silent for longer than the group's
// time-out; it names the peer ("rank 2 closed its connection", "rank 2 is silent since collective 14"), and
// the group is of no more use then.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "trainer/collective/rendezvous.hpp"

namespace trainer {

enum class Reduction { fast, tree };

class Collective {
 public:
  virtual ~Collective() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual std::string backend() const = 0;  // "local", "gloo", "nccl"

  // Sums over the ranks, in place. `tree` adds in one fixed binary tree, ((0+1)+(2+3))+((4+5)+(6+7)), and is
  // for sizes that are powers of two (else Errc::usage); `fast` in whatever order is fastest.
  virtual Result<> all_reduce(std::span<float> values, Reduction reduction) = 0;
  virtual Result<> all_reduce(std::span<double> values) = 0;
  virtual Result<> all_reduce(std::span<std::int64_t> values) = 0;

  virtual Result<> broadcast(std::span<std::byte> bytes, int root) = 0;
  // all holds size() times mine.size() bytes, by rank.
  virtual Result<> all_gather(std::span<const std::byte> mine, std::span<std::byte> all) = 0;
  virtual Result<> barrier() = 0;
};

struct GroupOptions {
  int rank = 0;
  int size = 1;
  std::string address;                               // a literal that the peers reach
  Milliseconds timeout = std::chrono::seconds(300);  // of one collective
  bool shared_memory = true;                         // may be used between ranks of one host
};

// A group of one: nothing to do.
std::unique_ptr<Collective> make_local_collective();

}  // namespace trainer
