#include "values.hpp"

#include <signal.h>

#include <algorithm>
#include <charconv>

namespace dlaunch {

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  std::size_t begin = 0;
  for (std::size_t end; (end = text.find(separator, begin)) != text.npos; begin = end + 1) {
    parts.push_back(text.substr(begin, end - begin));
  }
  parts.push_back(text.substr(begin));
  return parts;
}

std::string trimmed(const std::string& text) {
  auto first = text.find_first_not_of(" \t\r\n");
  if (first == text.npos) return "";
  return text.substr(first, text.find_last_not_of(" \t\r\n") - first + 1);
}

std::optional<long long> whole_number(const std::string& text) {
  std::string digits = trimmed(text);
  if (digits.size() > 1 && digits[0] == '+' && digits[1] != '-') digits.erase(0, 1);
  if (digits.size() > 19) return std::nullopt;
  long long number = 0;
  auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  if (digits.empty() || error != std::errc() || end != digits.data() + digits.size()) return std::nullopt;
  return number;
}

Result<std::string> read_text(const Claim& claim) {
  if (claim.text.empty()) return bad(claim, "is empty", "is a variable in the command unset?");
  return claim.text;
}

Result<int> read_int(const Claim& claim, long long least, long long most, std::string_view noun) {
  std::string range = "give a whole number from " + std::to_string(least) + " to " + std::to_string(most);
  if (claim.text.empty()) return bad(claim, "is empty", "is a variable in the command unset?");
  auto number = whole_number(claim.text);
  if (!number) return bad(claim, "is not a " + std::string(noun), range);
  if (*number < least) return bad(claim, "is below " + std::to_string(least), range);
  if (*number > most) return bad(claim, "is above " + std::to_string(most), range);
  return static_cast<int>(*number);
}

Result<std::uint16_t> read_port(const Claim& claim) {
  auto port = read_int(claim, 0, 65535, "port");
  if (!port) return port.error();
  return static_cast<std::uint16_t>(*port);
}

Result<std::chrono::seconds> read_seconds(const Claim& claim, long long least) {
  auto seconds = read_int(claim, least, 1'000'000'000, "number of seconds");
  if (!seconds) return seconds.error();
  return std::chrono::seconds(*seconds);
}

Result<bool> read_switch(const Claim& claim) {
  std::string word = trimmed(claim.text);
  std::transform(word.begin(), word.end(), word.begin(), [](unsigned char c) { return std::tolower(c); });
  if (word.empty() || word == "true" || word == "yes" || word == "on") return true;
  if (word == "false" || word == "no" || word == "off") return false;
  auto number = whole_number(word);
  if (!number) return bad(claim, "is neither on nor off", "give 1 or 0");
  return *number != 0;
}

Result<StreamSpec> read_streams(const Claim& claim) {
  const char* hint = "give 0, 1 (out), 2 (err) or 3 (both), or one of these for each local rank: 0:3,1:2";
  auto streams = [](const std::string& text) -> std::optional<StreamSpec::Streams> {
    if (text.size() != 1 || text[0] < '0' || text[0] > '3') return std::nullopt;
    return static_cast<StreamSpec::Streams>(text[0] - '0');
  };
  StreamSpec spec;
  if (auto all = streams(claim.text)) {
    spec.all = *all;
    return spec;
  }
  for (const std::string& part : split(claim.text, ',')) {
    auto colon = part.find(':');
    if (colon == part.npos) return bad(claim, "does not say which streams", hint);
    std::string rank = part.substr(0, colon);
    bool digits = !rank.empty() && rank.size() < 6 && std::all_of(rank.begin(), rank.end(), ::isdigit);
    auto value = streams(part.substr(colon + 1));
    if (!digits || !value) return bad(claim, "does not say which streams", hint);
    spec.by_local_rank[std::stoi(rank)] = *value;
  }
  return spec;
}

Result<std::set<int>> read_local_ranks(const Claim& claim) {
  std::set<int> ranks;
  for (const std::string& part : split(claim.text, ',')) {
    auto number = whole_number(part);
    if (!number || *number < 0 || *number > 99999) {
      return bad(claim, "is not a list of local ranks", "give it as 0,1,2");
    }
    ranks.insert(static_cast<int>(*number));
  }
  return ranks;
}

Result<std::set<int>> read_signals(const Claim& claim) {
  std::set<int> signals;
  for (const std::string& part : split(claim.text, ',')) {
    int number = signal_number(trimmed(part));
    if (number == 0) return bad(claim, "names no signal with '" + part + "'", "give it as SIGTERM,SIGINT");
    if (number == SIGKILL || number == SIGSTOP) {
      return bad(claim, "names " + signal_name(number) + ", which no program can handle", "leave it out");
    }
    signals.insert(number);
  }
  return signals;
}

namespace {

bool is_ipv6(const std::string& text) { return std::count(text.begin(), text.end(), ':') > 1; }

// Empty: it can be one.
std::string why_no_host(const std::string& host) {
  if (host.empty()) return "names no host";
  // A flag that stands where its value was forgotten would be looked up until the time-out.
  if (host.front() == '-' || host.find_first_of(" \t\r\n/@[]'\"") != host.npos) return "is not a host";
  return "";
}

}  // namespace

Result<Endpoint> read_endpoint(const Claim& claim) {
  const char* hint = "give it as host:port, with brackets around an IPv6 address: [fd00::1]:29400";
  const std::string& text = claim.text;
  Endpoint endpoint;
  std::string port;
  bool has_port = false;
  if (text.starts_with("[")) {
    auto close = text.find(']');
    if (close == text.npos) return bad(claim, "has no closing bracket", hint);
    endpoint.host = text.substr(1, close - 1);
    if (!is_ipv6(endpoint.host)) return bad(claim, "has no IPv6 address in its brackets", hint);
    std::string rest = text.substr(close + 1);
    has_port = !rest.empty();
    if (has_port && rest[0] != ':') return bad(claim, "goes on after its bracket without a colon", hint);
    if (has_port) port = rest.substr(1);
  } else if (is_ipv6(text)) {
    endpoint.host = text;
  } else {
    auto colon = text.find(':');
    endpoint.host = text.substr(0, colon);
    has_port = colon != text.npos;
    if (has_port) port = text.substr(colon + 1);
  }
  if (std::string why = why_no_host(endpoint.host); !why.empty()) return bad(claim, why, hint);
  if (has_port) {
    auto number = whole_number(port);
    if (!number || *number < 0 || *number > 65535) return bad(claim, "has no port from 0 to 65535", hint);
    endpoint.port = static_cast<std::uint16_t>(*number);
  }
  return endpoint;
}

Result<std::string> read_host(const Claim& claim) {
  if (claim.text.empty()) return bad(claim, "is empty", "is a variable in the command unset?");
  auto endpoint = read_endpoint(claim);
  if (!endpoint)
    return bad(claim, "is not the name or address of a host", "give a host name or an IP address");
  if (endpoint->port) return bad(claim, "has a port", "give the port with --master_port");
  return endpoint->host;
}

Result<std::vector<std::pair<std::string, std::string>>> read_pairs(const Claim& claim) {
  std::vector<std::pair<std::string, std::string>> pairs;
  for (const std::string& part : split(claim.text, ',')) {
    auto equals = part.find('=');
    std::string key = trimmed(part.substr(0, equals));
    std::string value = equals == part.npos ? "" : trimmed(part.substr(equals + 1));
    if (key.empty() || value.empty()) {
      return bad(claim, "is not a list of key=value", "give it as timeout=600,is_host=true");
    }
    pairs.emplace_back(key, value);
  }
  return pairs;
}

}  // namespace dlaunch
