#include "dlaunch/result.hpp"

#include <cerrno>
#include <cstring>

namespace dlaunch {

Error last_error(std::string_view call, Errc code) {
  return Error{code, std::string(call) + ": " + std::strerror(errno)};
}

}  // namespace dlaunch
