// Where the value of a flag comes from: the tiers in their order, and the words for messages. Private
// to the settings.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "dlaunch/environment.hpp"
#include "dlaunch/result.hpp"
#include "dlaunch/settings.hpp"

namespace dlaunch {

enum class Tier { flag, own_variable, pet_variable, engine, bare_variable, fallback };

// One origin's word on a setting, not yet converted.
struct Claim {
  Tier tier = Tier::fallback;
  std::string text;
  std::string source;  // "--nnodes", "PET_NNODES"
};

// "--nnodes 'x'", "--standalone", "PET_NNODES='x'".
std::string shown(const Claim& claim);

// A value that cannot be used: "--nnodes 'x' <why>".
Error bad(const Claim& claim, std::string_view why, std::string_view hint);

// What a batch system or an operator says, by flag name. Adapters come later: no engine is known yet.
std::map<std::string, Claim> engine_claims(const Environment& environment);

class Sources {
 public:
  Sources(const Typed& typed, const Environment& environment);  // both outlive it

  // The deciding word on a flag. A variable that is set and empty counts as not set, except for a
  // switch, where it means on (operators export PET_STANDALONE= so).
  std::optional<Claim> find(std::string_view flag) const;
  // A variable that is no flag's own: MASTER_ADDR, OMP_NUM_THREADS.
  std::optional<Claim> bare(const char* variable) const;
  bool typed(std::string_view flag) const;

 private:
  const Typed& typed_;
  const Environment& environment_;
  std::map<std::string, Claim> engine_;
};

// The claim that decides. Two of the deciding tier that disagree in meaning stop the job with both
// shown; those of losing tiers are not looked at. `meaning` converts a claim; its errors pass through.
template <class Meaning>
auto decide(const std::vector<Claim>& claims, std::string_view what, Meaning meaning)
    -> Result<std::optional<std::pair<typename decltype(meaning(Claim{}))::value_type, Claim>>> {
  using Value = typename decltype(meaning(Claim{}))::value_type;
  std::optional<std::pair<Value, Claim>> winner;
  for (const Claim& claim : claims) {
    bool better = true;
    for (const Claim& other : claims) better = better && claim.tier <= other.tier;
    if (!better) continue;
    auto value = meaning(claim);
    if (!value) return value.error();
    if (winner && !(winner->first == *value)) {
      return Error{Errc::usage,
                   shown(winner->second) + " and " + shown(claim) + " disagree about " + std::string(what),
                   "keep one of the two"};
    }
    if (!winner) winner.emplace(*value, claim);
  }
  return winner;
}

}  // namespace dlaunch
