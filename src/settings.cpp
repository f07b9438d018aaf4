#include "dlaunch/settings.hpp"

#include "settings/draft.hpp"
#include "settings/values.hpp"

namespace dlaunch {

namespace {

bool asked(const Sources& sources, std::string_view flag) {
  auto claim = sources.find(flag);
  if (!claim) return false;
  auto on = read_switch(*claim);
  return !on || *on;  // --explain=json is no number
}

Result<void> settle_questions(Draft& draft) {
  Settings& settings = draft.settings;
  if (asked(draft.sources, "explain") || asked(draft.sources, "dry_run"))
    settings.ask = Settings::Ask::explain;
  auto format = draft.sources.find("explain");
  if (!format) return {};
  settings.explain_json = format->text == "json";
  bool known = settings.explain_json || format->text == "text" || read_switch(*format);
  if (!known) return bad(*format, "is not a format", "give --explain or --explain=json");
  return {};
}

void note_flags_without_effect(Draft& draft) {
  for (const Flag& flag : all_flags()) {
    auto claim = draft.sources.find(flag.name);
    if (!claim || flag.status == Flag::Status::used) continue;
    if (flag.status == Flag::Status::unbuilt) {
      draft.settings.warnings.push_back(claim->source + " is not built yet and has no effect");
    } else {
      draft.settings.debug.push_back("ignored=" + claim->source + " value=" + claim->text);
    }
  }
}

}  // namespace

Result<Settings> settle(const Typed& typed, const Environment& environment, const Machine& machine) {
  Draft draft{typed, environment, machine, Sources(typed, environment)};
  for (auto [flag, ask] :
       {std::pair("help", Settings::Ask::help), std::pair("version", Settings::Ask::version)}) {
    if (!draft.sources.typed(flag)) continue;
    draft.settings.ask = ask;
    return draft.settings;
  }
  for (auto step : {settle_questions, settle_copies, settle_size, settle_meeting, settle_life, settle_program,
                    settle_devices, settle_output}) {
    if (auto done = step(draft); !done) return done.error();
  }
  note_flags_without_effect(draft);
  for (const Flag& flag : all_flags()) {
    if (auto found = draft.origins.find(std::string(flag.name)); found != draft.origins.end()) {
      draft.settings.origins.emplace_back(*found);
    }
  }
  return draft.settings;
}

}  // namespace dlaunch
