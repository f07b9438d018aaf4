// Where --init_method says that the ranks meet. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "dlaunch/environment.hpp"
#include "dlaunch/result.hpp"

namespace trainer {

using dlaunch::Errc;
using dlaunch::Error;
using dlaunch::Result;

struct InitUrl {
  enum class Kind { environment, tcp, file };
  Kind kind = Kind::environment;
  std::string host;  // tcp: a name or a literal, without brackets
  std::uint16_t port = 0;
  std::string path;  // file
};

Result<InitUrl> parse_init_url(std::string_view url);  // "env://", "tcp://[::1]:29500", "file:///tmp/meet"

struct Master {
  std::string host;
  std::uint16_t port = 0;
};

// MASTER_ADDR and MASTER_PORT.
Result<Master> master_of(const dlaunch::Environment& environment);

// "10.0.0.1:29500", "[::1]:29500"
std::string endpoint_text(const std::string& host, std::uint16_t port);

}  // namespace trainer
