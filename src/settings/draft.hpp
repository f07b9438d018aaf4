// Settings in the making, and the steps that fill them, each for one group of flags, in the order in
// which they need each other. Private to the settings.
#pragma once

#include <map>
#include <string>

#include "dlaunch/command.hpp"
#include "dlaunch/flag.hpp"
#include "dlaunch/settings.hpp"
#include "sources.hpp"

namespace dlaunch {

struct Draft {
  const Typed& typed;
  const Environment& environment;
  const Machine& machine;
  Sources sources;
  Settings settings = {};
  std::map<std::string, Origin> origins = {};
  Command command = {};
  bool standalone = false;  // and it decides

  Job& job() { return settings.job; }
  void record(std::string_view flag, std::string value, std::string source) {
    origins[std::string(flag)] = Origin{std::move(value), std::move(source)};
  }
  void record_default(std::string_view flag) {
    record(flag, std::string(find_flag(flag)->default_text), "default");
  }

  // The value of a flag whose only origins are its own; `read` converts a claim.
  template <class T, class Read>
  Result<T> take(std::string_view flag, T fallback, Read read) {
    auto claim = sources.find(flag);
    if (!claim) {
      record_default(flag);
      return fallback;
    }
    auto value = read(*claim);
    if (!value) return value.error();
    record(flag, claim->text, claim->source);
    return T(*value);
  }
  Result<bool> take_switch(std::string_view flag);
};

Result<void> settle_copies(Draft& draft);
Result<void> settle_size(Draft& draft);
Result<void> settle_meeting(Draft& draft);
Result<void> settle_program(Draft& draft);
Result<void> settle_devices(Draft& draft);
Result<void> settle_life(Draft& draft);
Result<void> settle_output(Draft& draft);

}  // namespace dlaunch
