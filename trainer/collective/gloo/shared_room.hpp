// Memory that all ranks of a group share when they run on one host: there an all-reduce needs no sockets,
// only copies. Each rank puts its numbers into its own part, adds up one share of everybody's, and takes the
// result.
//
// The memory has no name and so leaves nothing behind: rank 0 makes it, the others open it through /proc, and
// if one of them cannot (another host or container), nobody uses it.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "dlaunch/result.hpp"
#include "trainer/collective/rendezvous.hpp"

namespace trainer {

class SharedRoom {
 public:
  // By rank 0: the room, and in `place` where the others find it.
  static dlaunch::Result<std::unique_ptr<SharedRoom>> make(int size, std::string& place);
  // By the others.
  static dlaunch::Result<std::unique_ptr<SharedRoom>> enter(int rank, int size, const std::string& place);
  ~SharedRoom();

  enum class End { good, timed_out, peer_gone };
  // Sums in the fixed tree ((0+1)+(2+3))+…, as far as the number of ranks allows, for any number. `peer_gone`
  // is asked now and then while this waits; if it says so, that is the end.
  End all_reduce(std::span<float> values, Milliseconds limit, const std::function<bool()>& peer_gone);

 private:
  struct Head;
  SharedRoom(int rank, int size, void* memory, int fd);
  static dlaunch::Result<std::unique_ptr<SharedRoom>> map(int rank, int size, int fd);
  End piece(std::span<float> values, Milliseconds limit, const std::function<bool()>& peer_gone);
  End meet(Milliseconds limit, const std::function<bool()>& peer_gone);
  float* part(int rank) const;
  float* result() const { return part(size_); }

  int rank_;
  int size_;
  void* memory_;
  int fd_;  // kept open by rank 0, for the others; else -1
  std::uint32_t meetings_ = 0;
};

}  // namespace trainer
