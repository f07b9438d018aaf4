#include "trainer/collective/own_address.hpp"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>
#include <memory>

namespace trainer {

using dlaunch::Errc;
using dlaunch::Error;
using dlaunch::Result;

namespace {

std::string text_of(const sockaddr* address) {
  char text[INET6_ADDRSTRLEN] = {};
  if (address->sa_family == AF_INET) {
    ::inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in*>(address)->sin_addr, text, sizeof text);
  } else if (address->sa_family == AF_INET6) {
    ::inet_ntop(AF_INET6, &reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr, text, sizeof text);
  }
  return text;
}

// Empty if there is no way to `peer`.
std::string source_towards(const std::string& peer) {
  sockaddr_storage target{};
  socklen_t length = 0;
  auto* four = reinterpret_cast<sockaddr_in*>(&target);
  auto* six = reinterpret_cast<sockaddr_in6*>(&target);
  constexpr in_port_t kAnyPort = 9;  // nothing is sent to it
  if (::inet_pton(AF_INET, peer.c_str(), &four->sin_addr) == 1) {
    four->sin_family = AF_INET;
    four->sin_port = htons(kAnyPort);
    length = sizeof *four;
  } else if (::inet_pton(AF_INET6, peer.c_str(), &six->sin6_addr) == 1) {
    six->sin6_family = AF_INET6;
    six->sin6_port = htons(kAnyPort);
    length = sizeof *six;
  } else {
    return "";
  }
  int fd = ::socket(target.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return "";
  std::string found;
  sockaddr_storage own{};
  socklen_t own_length = sizeof own;
  if (::connect(fd, reinterpret_cast<sockaddr*>(&target), length) == 0 &&
      ::getsockname(fd, reinterpret_cast<sockaddr*>(&own), &own_length) == 0) {
    found = text_of(reinterpret_cast<sockaddr*>(&own));
  }
  ::close(fd);
  return found;
}

}  // namespace

Result<std::string> literal_of(const std::string& host) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* raw = nullptr;
  if (int code = ::getaddrinfo(host.c_str(), nullptr, &hints, &raw)) {
    return Error{Errc::unreachable, "the name '" + host + "' has no address: " + ::gai_strerror(code)};
  }
  std::unique_ptr<addrinfo, void (*)(addrinfo*)> found(raw, ::freeaddrinfo);
  for (auto family : {AF_INET, AF_INET6}) {
    for (auto* each = raw; each; each = each->ai_next) {
      if (each->ai_family == family) return text_of(each->ai_addr);
    }
  }
  return Error{Errc::unreachable, "the name '" + host + "' has no IP address"};
}

Result<std::string> own_address(const std::optional<std::string>& peer,
                                const std::optional<std::string>& interface) {
  if (interface && !interface->empty()) {
    ifaddrs* raw = nullptr;
    if (::getifaddrs(&raw) != 0) return dlaunch::last_error("getifaddrs");
    std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> all(raw, ::freeifaddrs);
    for (auto family : {AF_INET, AF_INET6}) {
      for (auto* each = raw; each; each = each->ifa_next) {
        if (each->ifa_addr && each->ifa_addr->sa_family == family && *interface == each->ifa_name)
          return text_of(each->ifa_addr);
      }
    }
    return Error{Errc::usage,
                 "GLOO_SOCKET_IFNAME is '" + *interface + "', which is no interface with an address here"};
  }
  constexpr auto kOutside = "192.0.2.1";  // kept for documentation: the default route leads there
  auto found = source_towards(peer.value_or(kOutside));
  if (found.empty() && peer) return Error{Errc::unreachable, "no way from here to " + *peer};
  return found.empty() ? "127.0.0.1" : found;
}

}  // namespace trainer
