// A group over Gloo's TCP transport, on host memory. Gloo throws when a peer is gone or silent; here that
// becomes an Error that names the peer.
#pragma once

#include <gloo/context.h>
#include <gloo/transport/unbound_buffer.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "trainer/collective/collective.hpp"
#include "trainer/collective/gloo/shared_room.hpp"

namespace trainer {

class GlooCollective : public Collective {
 public:
  // `rendezvous` outlives the group: the ranks tell there that they fail.
  static Result<std::unique_ptr<Collective>> connect(const GroupOptions& options, Rendezvous& rendezvous);

  int rank() const override { return options_.rank; }
  int size() const override { return options_.size; }
  std::string backend() const override { return "gloo"; }

  Result<> all_reduce(std::span<float> values, Reduction reduction) override;
  Result<> all_reduce(std::span<double> values) override;
  Result<> all_reduce(std::span<std::int64_t> values) override;
  Result<> broadcast(std::span<std::byte> bytes, int root) override;
  Result<> all_gather(std::span<const std::byte> mine, std::span<std::byte> all) override;
  Result<> barrier() override;

 private:
  GlooCollective(const GroupOptions& options, Rendezvous& rendezvous)
      : options_(options), rendezvous_(rendezvous) {}

  // Does `work` as the next collective, called `name`; what it throws becomes the group's error. Without any
  // bytes there is nothing to do; a barrier has no number of them.
  Result<> run(const std::string& name, std::optional<std::size_t> bytes, const std::function<void()>& work);
  Error blame(const std::string& what, const std::string& thrown);
  std::vector<int> without_connection();
  // Which of them have not said that they fail; nothing if the store cannot be asked any more.
  std::optional<std::vector<int>> without_word(const std::vector<int>& peers, Milliseconds limit);

  template <class T>
  void ring(std::span<T> values);
  void tree(std::span<float> values);
  void pairwise(std::span<float> values);
  Result<> find_room();
  void sum_in_room(std::span<float> values);
  // Sends `out` to the peer and receives as many bytes as `in` has from it.
  void exchange(int peer, std::span<const float> out, std::span<float> in);

  GroupOptions options_;
  Rendezvous& rendezvous_;
  std::shared_ptr<gloo::Context> context_;
  std::unique_ptr<SharedRoom> room_;  // none: the ranks are on several hosts
  std::uint64_t number_ = 0;          // of the collective under way
  std::uint64_t messages_ = 0;        // of exchange(), the same on both sides
  std::vector<float> received_;
  std::optional<Error> broken_;
};

}  // namespace trainer
