// What ranks need of the place where they meet, beyond keys and values: that only one of several can claim a
// name. Two kinds: a store and a file.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "trainer/collective/rendezvous.hpp"

namespace trainer {

class MeetingPlace : public Rendezvous {
 public:
  // Sets the key unless it is set already; what it holds afterwards. `value` is not empty.
  virtual Result<std::string> settle(const std::string& key, const std::string& value) = 0;
};

// A client of the store at host:port, a literal; `prefix` goes before every key. The rank that serves the
// store as well stays until the others have said that they leave, or a few seconds.
struct StorePlace {
  std::string host;
  std::uint16_t port = 0;
  std::string prefix;
  std::optional<int> served_by;  // a rank; none where the launcher serves it
  int rank = 0;
  int world_size = 1;
};
Result<std::unique_ptr<MeetingPlace>> meet_at_store(const StorePlace& place, Milliseconds limit);

// A file that all ranks can lock. What a killed run left there is recognised, since nobody holds its lock,
// and dropped. The last to leave deletes the file.
Result<std::unique_ptr<MeetingPlace>> meet_at_file(const std::string& path, const std::string& prefix,
                                                   Milliseconds limit);

}  // namespace trainer
