#include <cstdint>
#include <string_view>

#include "trainer/collective/init_url.hpp"
#include "trainer/collective/rendezvous.hpp"
#include "trainer/number.hpp"

namespace trainer {
namespace {

// A number of the place, and where it was said: "--rank", "RANK".
struct Said {
  int value = 0;
  std::string where;
  bool by_flag = false;
  std::string text() const { return where + " is " + std::to_string(value); }
};

Result<std::optional<Said>> said(const std::optional<int>& flag, const char* flag_name, const char* variable,
                                 const dlaunch::Environment& environment) {
  if (flag) return std::optional<Said>(Said{*flag, flag_name, true});
  const auto text = environment.get(variable);
  if (!text) return std::optional<Said>();
  const auto value = number_in<int>(*text);
  if (!value) {
    return Error{Errc::usage, std::string(variable) + " is '" + *text + "', which is no number",
                 "set it to a whole number, or give " + std::string(flag_name)};
  }
  return std::optional<Said>(Said{*value, variable, false});
}

Error half(const Said& there, std::string_view missing, std::string_view hint) {
  return Error{Errc::usage, there.text() + ", but " + std::string(missing) + " is not set",
               std::string(hint)};
}

// Index and size of one kind, both or neither.
Result<> check_pair(const std::optional<Said>& index, const std::optional<Said>& size,
                    std::string_view index_name, std::string_view size_name, std::string_view hint) {
  if (index && !size) return half(*index, size_name, hint);
  if (size && size->value < 1) {
    return Error{Errc::usage, size->text() + ", which is too few", "it is 1 or more"};
  }
  // One alone needs no index.
  if (size && !index && size->value > 1) return half(*size, index_name, hint);
  if (index && (index->value < 0 || index->value >= size->value)) {
    return Error{Errc::usage, index->text() + ", but " + size->text(),
                 "it is a number from 0 to " + std::to_string(size->value - 1)};
  }
  return {};
}

}  // namespace

Result<Place> place_of(const InitOptions& options, const dlaunch::Environment& environment) {
  const auto url = parse_init_url(options.url);
  if (!url) return url.error();

  const auto rank = said(options.rank, "--rank", "RANK", environment);
  if (!rank) return rank.error();
  const auto world = said(options.world_size, "--world_size", "WORLD_SIZE", environment);
  if (!world) return world.error();
  const auto local = said(options.local_rank, "--local_rank", "LOCAL_RANK", environment);
  if (!local) return local.error();
  const auto index = said(options.process_index, "--process_index", "PROCESS_INDEX", environment);
  if (!index) return index.error();
  const auto copies = said(options.process_num, "--process_num", "PROCESS_NUM", environment);
  if (!copies) return copies.error();
  const auto round = said(std::nullopt, "a launcher", "TORCHELASTIC_RESTART_COUNT", environment);
  if (!round) return round.error();

  if (Result<> pair = check_pair(*rank, *world, "RANK or --rank", "WORLD_SIZE or --world_size",
                                 "set both, as a launcher does, or neither for one process alone");
      !pair) {
    return pair.error();
  }
  if (Result<> pair = check_pair(*index, *copies, "--process_index", "--process_num",
                                 "give both: --process_index 0 --process_num 4 is the first of 4 copies");
      !pair) {
    return pair.error();
  }

  Place place;
  if (*world) place.world_size = (*world)->value;
  if (*rank) place.rank = (*rank)->value;
  if (*round) place.round = (*round)->value;
  place.run_id = environment.get("TORCHELASTIC_RUN_ID").value_or("");

  if (*local && (*local)->value < 0) {
    return Error{Errc::usage, (*local)->text() + ", which is below 0",
                 "it is the process's number on its host"};
  }
  if (*local) place.local_rank = (*local)->value;

  if (*copies) {
    place.process_num = (*copies)->value;
    if (*index) place.process_index = (*index)->value;
    // Copies that a launcher joins to one group carry both; then they are the same thing said twice.
    const bool same = place.process_num == place.world_size && place.process_index == place.rank;
    if (place.world_size > 1 && place.process_num > 1 && !same) {
      return Error{
          Errc::usage,
          (*copies)->text() + " asks for independent copies, but " + (*world)->text() + " for one group",
          "give one of them"};
    }
  }

  if (url->kind != InitUrl::Kind::environment) {
    if (!*world) {
      return Error{Errc::usage, "--init_method '" + options.url + "' needs a rank and a world size",
                   "give --rank and --world_size, or set RANK and WORLD_SIZE"};
    }
    return place;
  }
  if (place.world_size > 1) {
    if (const auto master = master_of(environment); !master) return master.error();
  }
  return place;
}

}  // namespace trainer
