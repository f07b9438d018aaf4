#include "trainer/loop/injection.hpp"

#include <unistd.h>

#include <chrono>
#include <csignal>
#include <limits>
#include <set>
#include <string_view>
#include <thread>

#include "trainer/number.hpp"

namespace trainer {
namespace {

using dlaunch::Errc;
using dlaunch::Error;
using dlaunch::Result;
using How = Injection::How;

constexpr auto kForm = "rank=R,step=S,how=exit:N|kill|hang|slow:MS|nan|flip[,round=N|all]";
constexpr std::int64_t kLargest = std::numeric_limits<int>::max();

std::string quoted(std::string_view text) { return "'" + std::string(text) + "'"; }
Error wrong(const std::string& text) { return Error{Errc::usage, text, std::string("write ") + kForm}; }

Result<std::int64_t> number(std::string_view what, std::string_view text, std::int64_t largest) {
  auto value = number_in<std::int64_t>(text);
  if (!value || *value < 0 || *value > largest) {
    return wrong(std::string(what) + " needs a whole number from 0 to " + std::to_string(largest) + ", got " +
                 quoted(text));
  }
  return *value;
}

struct Kind {
  std::string_view name;
  How how;
  std::int64_t largest;     // of its number; 0: it takes none
  std::string_view number;  // what that is
};
constexpr Kind kKinds[] = {{"exit", How::exit, 255, "a code"}, {"kill", How::kill, 0, ""},
                           {"hang", How::hang, 0, ""},         {"slow", How::slow, kLargest, "milliseconds"},
                           {"nan", How::nan, 0, ""},           {"flip", How::flip, 0, ""}};

Result<> parse_how(std::string_view text, Injection& injection) {
  auto colon = text.find(':');
  auto name = text.substr(0, colon);
  for (const auto& kind : kKinds) {
    if (kind.name != name) continue;
    injection.how = kind.how;
    bool given = colon != text.npos;
    if (kind.largest == 0 && given)
      return wrong("how=" + std::string(name) + " takes no number, got " + quoted(text));
    if (kind.largest == 0) return {};
    if (!given)
      return wrong("how=" + std::string(name) + " needs " + std::string(kind.number) + ", as " +
                   std::string(name) + ":7");
    auto value = number("how=" + std::string(name), text.substr(colon + 1), kind.largest);
    if (!value) return std::move(value).error();
    injection.number = static_cast<int>(*value);
    return {};
  }
  return wrong("how is " + quoted(text) + ", not one of exit:N, kill, hang, slow:MS, nan and flip");
}

Result<> parse_pair(std::string_view key, std::string_view value, Injection& injection) {
  if (key == "how") return parse_how(value, injection);
  if (key == "round" && value == "all") {
    injection.round.reset();
    return {};
  }
  auto parsed = number(key, value, key == "step" ? std::numeric_limits<std::int64_t>::max() : kLargest);
  if (!parsed) return std::move(parsed).error();
  if (key == "rank") injection.rank = static_cast<int>(*parsed);
  if (key == "step") injection.step = *parsed;
  if (key == "round") injection.round = static_cast<int>(*parsed);
  return {};
}

}  // namespace

Result<Injection> parse_injection(const std::string& text) {
  Injection injection;
  const std::set<std::string_view> known{"rank", "step", "how", "round"};
  std::set<std::string_view> given;
  for (std::string_view rest = text; !rest.empty();) {
    auto comma = rest.find(',');
    auto part = rest.substr(0, comma);
    rest = comma == rest.npos ? std::string_view() : rest.substr(comma + 1);
    if (comma != part.npos && rest.empty()) return wrong("a comma with nothing behind it");
    auto equals = part.find('=');
    auto key = part.substr(0, equals);
    if (equals == part.npos) return wrong(quoted(part) + " is no key=value");
    if (known.count(key) == 0)
      return wrong("unknown key " + quoted(key) + ", not one of rank, step, how and round");
    if (!given.insert(key).second) return wrong(std::string(key) + " is given twice");
    auto parsed = parse_pair(key, part.substr(equals + 1), injection);
    if (!parsed) return std::move(parsed).error();
  }
  for (auto key : {"rank", "step", "how"}) {
    if (given.count(key) == 0) return wrong(std::string(key) + " is missing");
  }
  return injection;
}

bool applies(const Injection& injection, int rank, std::int64_t step, int round) {
  if (injection.rank != rank || (injection.round && *injection.round != round)) return false;
  return injection.how == How::slow ? step >= injection.step : step == injection.step;
}

void perform(const Injection& injection) {
  switch (injection.how) {
    case How::exit:
      ::_exit(injection.number);
    case How::kill:
      ::kill(::getpid(), SIGKILL);
      [[fallthrough]];
    case How::hang:
      for (;;) ::pause();
    case How::slow:
      std::this_thread::sleep_for(std::chrono::milliseconds(injection.number));
      return;
    case How::nan:
    case How::flip:
      return;
  }
}

}  // namespace trainer
