#include "sources.hpp"

#include "dlaunch/flag.hpp"

namespace dlaunch {

std::string shown(const Claim& claim) {
  if (!claim.source.starts_with("--")) return claim.source + "='" + claim.text + "'";
  const Flag* flag = find_flag(claim.source.substr(2));
  bool is_switch = flag && flag->takes == Flag::Takes::nothing;
  return is_switch ? claim.source : claim.source + " '" + claim.text + "'";
}

Error bad(const Claim& claim, std::string_view why, std::string_view hint) {
  return Error{Errc::usage, shown(claim) + " " + std::string(why), std::string(hint)};
}

std::map<std::string, Claim> engine_claims(const Environment&) { return {}; }

Sources::Sources(const Typed& typed, const Environment& environment)
    : typed_(typed), environment_(environment), engine_(engine_claims(environment)) {}

std::optional<Claim> Sources::find(std::string_view name) const {
  const Flag& flag = *find_flag(name);
  if (auto found = typed_.flags.find(std::string(name)); found != typed_.flags.end()) {
    return Claim{Tier::flag, found->second, "--" + found->first};
  }
  auto from = [&](const std::string& variable, Tier tier) -> std::optional<Claim> {
    if (variable.empty()) return std::nullopt;
    auto value = environment_.get(variable);
    if (!value) return std::nullopt;
    if (value->empty() && flag.takes == Flag::Takes::value) return std::nullopt;
    return Claim{tier, *value, variable};
  };
  if (auto own = from(own_variable(flag), Tier::own_variable)) return own;
  if (auto pet = from(pet_variable(flag), Tier::pet_variable)) return pet;
  if (auto found = engine_.find(std::string(name)); found != engine_.end()) return found->second;
  return std::nullopt;
}

std::optional<Claim> Sources::bare(const char* variable) const {
  auto value = environment_.get(variable);
  if (!value || value->empty()) return std::nullopt;
  return Claim{Tier::bare_variable, *value, variable};
}

bool Sources::typed(std::string_view flag) const { return typed_.flags.contains(std::string(flag)); }

}  // namespace dlaunch
