// A port that is kept for somebody else: bound and never listening, with SO_REUSEADDR. PyTorch's own
// store binds over it with the same option; everybody else is given other ports by the kernel.
#pragma once

#include <cstdint>

#include "dlaunch/result.hpp"

namespace dlaunch {

class HeldPort {
 public:
  // 0: any free one. An error names the port.
  static Result<HeldPort> hold(std::uint16_t port);

  HeldPort(HeldPort&& other) noexcept;
  HeldPort& operator=(HeldPort&& other) noexcept;
  ~HeldPort();

  std::uint16_t port() const { return port_; }

 private:
  HeldPort(int fd, std::uint16_t port) : fd_(fd), port_(port) {}
  int fd_ = -1;
  std::uint16_t port_ = 0;
};

}  // namespace dlaunch
