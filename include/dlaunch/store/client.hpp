// A client of the store, dialect 2, for programs that block while they ask: the trainer and tests. Works
// with PyTorch's servers since 2.2 as well (queues since 2.8; LIST_KEYS and BARRIER since 2.12).
//
// Keys are those of PyTorch's users: the slash that its clients put in front on the wire is put here too.
// Every call ends: a question that is not answered in time is an error, and then the connection is of no
// more use. A wait that runs out is Errc::timed_out, and the connection is well.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "dlaunch/result.hpp"

namespace dlaunch::store {

class StoreClient {
 public:
  using Milliseconds = std::chrono::milliseconds;
  using Keys = std::vector<std::string>;

  // `host` is an IPv4 or IPv6 literal. A server that does not listen or answer yet is tried again until
  // `limit`, but one that hangs up (Errc::refused) or speaks otherwise (Errc::bad_frame) only for `answer`.
  // Afterwards any answer may take `answer`: a server that is well gives one within milliseconds.
  static Result<StoreClient> connect(const std::string& host, std::uint16_t port,
                                     Milliseconds limit = std::chrono::seconds(300),
                                     Milliseconds answer = std::chrono::seconds(5));

  StoreClient(StoreClient&& other) noexcept;
  StoreClient& operator=(StoreClient&& other) noexcept;
  ~StoreClient();

  Result<> set(std::string_view key, std::string_view value);
  Result<std::string> get(std::string_view key, Milliseconds limit);   // waits for the key
  Result<std::int64_t> add(std::string_view key, std::int64_t delta);  // the sum
  Result<bool> check(const Keys& keys);                                // are all there?
  Result<> wait(const Keys& keys, Milliseconds limit);
  // What the key holds afterwards. A key that is missing is created if `expected` is empty; else nothing is
  // stored and the answer is `expected`.
  Result<std::string> compare_set(std::string_view key, std::string_view expected, std::string_view desired);
  Result<bool> delete_key(std::string_view key);  // was it there?
  Result<std::int64_t> num_keys();
  Result<> append(std::string_view key, std::string_view tail);
  Result<std::vector<std::string>> multi_get(const Keys& keys, Milliseconds limit);  // waits for all
  Result<> multi_set(const std::vector<std::pair<std::string, std::string>>& pairs);
  Result<> queue_push(std::string_view name, std::string_view value);
  Result<std::string> queue_pop(std::string_view name, Milliseconds limit);  // waits for one
  Result<std::int64_t> queue_len(std::string_view name);
  Result<std::vector<std::string>> list_keys();
  // Returns when `world_size` clients have called it. The key is used up.
  Result<> barrier(std::string_view key, std::int64_t world_size, Milliseconds limit);

  // The worker's count that every PyTorch client with a world size adds 1 to.
  Result<std::int64_t> join();

 private:
  using Deadline = std::chrono::steady_clock::time_point;

  StoreClient(int fd, Milliseconds answer) : fd_(fd), answer_(answer) {}
  Result<> greet(Deadline deadline);
  Result<> send(std::string_view bytes);
  Result<> receive(std::size_t count, Deadline deadline);  // until `in_` holds that many
  Result<std::int64_t> receive_number();
  Result<std::string> receive_string();
  Result<std::uint8_t> receive_byte(Deadline deadline);
  Result<> await(std::string_view request, Milliseconds limit, std::string_view what);
  Error broken(Error error);

  int fd_ = -1;
  Milliseconds answer_;
  std::string in_;  // received and not taken yet
  std::string why_broken_;
};

}  // namespace dlaunch::store
