#include "trainer/collective/init_url.hpp"

#include <optional>

#include "trainer/number.hpp"

namespace trainer {
namespace {

std::optional<std::uint16_t> port_of(std::string_view text) {
  const auto port = number_in<std::uint16_t>(text);
  return port == 0 ? std::nullopt : port;
}

Error bad(std::string_view url, const std::string& why, const char* hint) {
  return Error{Errc::usage, "--init_method '" + std::string(url) + "' " + why, hint};
}

}  // namespace

Result<InitUrl> parse_init_url(std::string_view url) {
  constexpr std::string_view kTcp = "tcp://", kFile = "file://";
  InitUrl out;
  if (url == "env://") return out;

  if (url.starts_with(kFile)) {
    out.kind = InitUrl::Kind::file;
    out.path = url.substr(kFile.size());
    if (!out.path.starts_with('/') || out.path.ends_with('/')) {
      return bad(url, "names no file",
                 "write file:///PATH, the whole path of a file that all ranks can write");
    }
    if (out.path.find('\0') != std::string::npos) return bad(url, "has a zero byte", "write file:///PATH");
    return out;
  }

  if (url.starts_with(kTcp)) {
    constexpr const char* kHint = "write tcp://HOST:PORT, an IPv6 address in brackets: tcp://[::1]:29500";
    out.kind = InitUrl::Kind::tcp;
    const std::string_view rest = url.substr(kTcp.size());
    const std::size_t colon = rest.rfind(':');
    if (colon == std::string_view::npos || rest.ends_with(']')) return bad(url, "has no port", kHint);
    const auto port = port_of(rest.substr(colon + 1));
    if (!port) {
      return bad(url, "has the port '" + std::string(rest.substr(colon + 1)) + "'", "a port is 1 to 65535");
    }
    std::string_view host = rest.substr(0, colon);
    if (host.starts_with('[') && host.ends_with(']')) {
      host = host.substr(1, host.size() - 2);
    } else if (host.find(':') != std::string_view::npos) {
      return bad(url, "has more than one colon", kHint);
    }
    if (host.empty()) return bad(url, "has no host", kHint);
    out.host = host;
    out.port = *port;
    return out;
  }
  return bad(url, "is no init method", "it is env://, tcp://HOST:PORT or file:///PATH");
}

Result<Master> master_of(const dlaunch::Environment& environment) {
  constexpr const char* kHint = "start it with a launcher, or give --init_method tcp://HOST:PORT";
  const auto host = environment.get("MASTER_ADDR");
  const auto port = environment.get("MASTER_PORT");
  for (const char* name : {"MASTER_ADDR", "MASTER_PORT"}) {
    if (environment.get(name).value_or("").empty()) {
      return Error{Errc::usage, std::string(name) + " is not set, and a group of several ranks meets there",
                   kHint};
    }
  }
  const auto number = port_of(*port);
  if (!number) return Error{Errc::usage, "MASTER_PORT is '" + *port + "'", "a port is 1 to 65535"};
  return Master{*host, *number};
}

std::string endpoint_text(const std::string& host, std::uint16_t port) {
  const bool six = host.find(':') != std::string::npos;
  return (six ? "[" + host + "]:" : host + ":") + std::to_string(port);
}

}  // namespace trainer
