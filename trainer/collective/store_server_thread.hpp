// The launcher's store in a thread of this process, for runs that no launcher serves.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "dlaunch/result.hpp"

namespace trainer {

class StoreServerThread {
 public:
  // Listens at `host`, a literal, or on all interfaces where no interface has that address.
  static dlaunch::Result<std::unique_ptr<StoreServerThread>> listen(const std::string& host,
                                                                    std::uint16_t port);
  ~StoreServerThread();  // closes every connection

 private:
  struct Inside;
  explicit StoreServerThread(std::unique_ptr<Inside> inside);
  std::unique_ptr<Inside> inside_;
};

}  // namespace trainer
