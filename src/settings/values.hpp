// Values out of text, without a word about where the text came from. Errors say what is wrong with
// the value ("is not a port"); the caller puts the flag and the text in front.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "dlaunch/job.hpp"
#include "dlaunch/result.hpp"
#include "sources.hpp"

namespace dlaunch {

// A whole number as Python's int() reads one; empty if it is none, or beyond 18 digits.
std::optional<long long> whole_number(const std::string& text);

// Each takes a claim, so that the error can show it.
Result<std::string> read_text(const Claim& claim);  // anything but nothing
Result<int> read_int(const Claim& claim, long long least, long long most, std::string_view noun);
Result<std::uint16_t> read_port(const Claim& claim);  // 0 too
Result<std::chrono::seconds> read_seconds(const Claim& claim, long long least);
Result<bool> read_switch(const Claim& claim);                // "" is on, else a whole number or a word
Result<StreamSpec> read_streams(const Claim& claim);         // "3", "0:1,12:3"
Result<std::set<int>> read_local_ranks(const Claim& claim);  // "0,1"
Result<std::set<int>> read_signals(const Claim& claim);      // "SIGTERM,INT"

struct Endpoint {
  std::string host;  // without brackets
  std::optional<std::uint16_t> port;
};
// "host", "host:1", "[::1]:1", "[::1]", "::1".
Result<Endpoint> read_endpoint(const Claim& claim);
Result<std::string> read_host(const Claim& claim);  // an address without a port

// "k=v,k=v"
Result<std::vector<std::pair<std::string, std::string>>> read_pairs(const Claim& claim);

std::vector<std::string> split(const std::string& text, char separator);
std::string trimmed(const std::string& text);

}  // namespace dlaunch
