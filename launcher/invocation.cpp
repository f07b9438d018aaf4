#include "launcher/invocation.hpp"

#include <cstdio>

#include "dlaunch/log.hpp"
#include "launcher/explain.hpp"
#include "launcher/flags.hpp"

namespace dlaunch {

namespace {

constexpr int kExitUsage = 2;
constexpr int kExitOwnFailure = 125;

Result<Settings> read(const std::vector<std::string>& argv, const Environment& environment,
                      const Machine& machine) {
  auto typed = scan(argv);
  if (!typed) return typed.error();
  bool asks_only = typed->flags.contains("help") || typed->flags.contains("version");
  if (!asks_only) {
    if (auto alone = check_exclusions(*typed); !alone) return alone.error();
  }
  return settle(*typed, environment, machine);
}

Invocation answer(const std::string& text) {
  bool written = std::fputs(text.c_str(), stdout) >= 0 && std::fflush(stdout) == 0;
  return {std::nullopt, written ? 0 : kExitOwnFailure};
}

}  // namespace

Invocation read_invocation(const std::vector<std::string>& argv, const Environment& environment,
                           const Machine& machine) {
  auto settings = read(argv, environment, machine);
  if (!settings) {
    log::error(settings.error().text, settings.error().hint);
    return {std::nullopt, kExitUsage};
  }
  log::set_level(settings->log_level);
  if (settings->ask == Settings::Ask::help) return answer(help_text());
  if (settings->ask == Settings::Ask::version) return answer("dlaunch " DLAUNCH_VERSION "\n");
  for (const auto& warning : settings->warnings) log::warn(warning);
  for (const auto& facts : settings->debug) log::debug(facts);
  if (settings->ask == Settings::Ask::explain) {
    return answer(settings->explain_json ? explain_json(*settings, environment)
                                         : explain(*settings, environment));
  }
  return {std::move(*settings), 0};
}

}  // namespace dlaunch
