#include <unistd.h>

#include <algorithm>
#include <random>
#include <thread>

#include "trainer/collective/init_url.hpp"
#include "trainer/collective/meeting_place.hpp"
#include "trainer/collective/own_address.hpp"
#include "trainer/collective/rank_names.hpp"

namespace trainer {
namespace {

using Clock = std::chrono::steady_clock;
constexpr Milliseconds kGlance{200};     // between looks at whether somebody has refused
constexpr Milliseconds kPatience{5000};  // without a word about who is missing

struct Found {
  std::unique_ptr<MeetingPlace> place;
  std::string address;
};

// Names are looked up again until the limit: at the start of a job they may come late.
Result<std::string> look_up(const std::string& host, Clock::time_point deadline) {
  for (;;) {
    auto literal = literal_of(host);
    if (literal || Clock::now() + kGlance >= deadline) return literal;
    std::this_thread::sleep_for(kGlance);
  }
}

// Keys of other jobs and rounds in the same store are never read.
std::string prefix_of(const Place& place) {
  return "train/" + place.run_id + "/" + std::to_string(place.round) + "/";
}

Result<Found> find_store(const Master& master, std::optional<int> served_by, const Place& place,
                         const dlaunch::Environment& environment, Clock::time_point deadline,
                         const Tell& tell) {
  auto left = [&] {
    return std::max(std::chrono::duration_cast<Milliseconds>(deadline - Clock::now()), Milliseconds(1));
  };
  auto literal = look_up(master.host, deadline);
  if (!literal) return std::move(literal).error();
  auto address = own_address(*literal, environment.get("GLOO_SOCKET_IFNAME"));
  if (!address) return std::move(address).error();
  const StorePlace store{*literal, master.port, prefix_of(place), served_by, place.rank, place.world_size};
  const auto name = (served_by ? "rank 0's store at " : "the launcher's store at ") +
                    endpoint_text(master.host, master.port);
  auto met = meet_at_store(store, std::min(left(), kPatience));
  const bool late = !met && (met.error().code == Errc::unreachable || met.error().code == Errc::timed_out);
  if (late && Clock::now() < deadline) {
    tell("rank " + std::to_string(place.rank) + " waits for " + name);
    met = meet_at_store(store, left());
  }
  if (!met) return std::move(met).error().under(name);
  return Found{std::move(*met), *address};
}

Result<Found> find(const InitUrl& url, const Place& place, const dlaunch::Environment& environment,
                   Clock::time_point deadline, Milliseconds limit, const Tell& tell) {
  if (url.kind == InitUrl::Kind::file) {
    auto address = own_address(std::nullopt, environment.get("GLOO_SOCKET_IFNAME"));
    if (!address) return std::move(address).error();
    auto met = meet_at_file(url.path, prefix_of(place), limit);
    if (!met) return std::move(met).error();
    return Found{std::move(*met), *address};
  }
  if (url.kind == InitUrl::Kind::tcp) {
    return find_store({url.host, url.port}, 0, place, environment, deadline, tell);
  }
  auto master = master_of(environment);
  if (!master) return std::move(master).error();
  auto launcher_serves = environment.get("TORCHELASTIC_USE_AGENT_STORE").value_or("") == "True";
  auto served_by = launcher_serves ? std::nullopt : std::optional<int>(0);
  return find_store(*master, served_by, place, environment, deadline, tell);
}

// Tells this process from another with the same rank, also to people.
std::string self() {
  char host[256] = {};
  ::gethostname(host, sizeof host - 1);
  std::random_device random;
  return std::string("process ") + std::to_string(::getpid()) + " on " + host + "#" +
         std::to_string(random()) + std::to_string(random());
}

Result<> claim(MeetingPlace& meeting, const Place& place) {
  const auto world = std::to_string(place.world_size);
  auto agreed = meeting.settle("world_size", world);
  if (!agreed) return std::move(agreed).error();
  if (*agreed != world) {
    auto text = "rank " + std::to_string(place.rank) + " was started with a world size of " + world +
                ", another with " + *agreed;
    (void)meeting.set("refused", text);
    return Error{Errc::usage, text, "give all ranks the same --world_size (WORLD_SIZE)"};
  }
  const auto me = self();
  auto holder = meeting.settle("rank/" + std::to_string(place.rank), me);
  if (!holder) return std::move(holder).error();
  if (*holder == me) return {};
  return Error{
      Errc::usage,
      "rank " + std::to_string(place.rank) + " is here already: " + holder->substr(0, holder->find('#')),
      "is another job meeting at the same place, or was a rank started twice?"};
}

std::vector<int> missing_ranks(MeetingPlace& meeting, const Place& place) {
  std::vector<int> missing;
  for (int rank = 0; rank < place.world_size; ++rank) {
    auto here = meeting.has("rank/" + std::to_string(rank));
    if (here && !*here) missing.push_back(rank);
  }
  return missing;
}

// The lowest rank that is there tells whom all wait for.
Result<> await_all(MeetingPlace& meeting, const Place& place, Clock::time_point deadline, Milliseconds limit,
                   const Tell& tell) {
  bool told = false;
  for (int rank = 0; rank < place.world_size; ++rank) {
    for (;;) {
      auto there = meeting.get("rank/" + std::to_string(rank), kGlance);
      if (there) break;
      if (there.error().code != Errc::timed_out) return std::move(there).error();
      auto refused = meeting.has("refused");
      if (refused && *refused) {
        auto text = meeting.get("refused", kGlance);
        return Error{Errc::usage, text ? *text : std::string("a rank was refused")};
      }
      const bool patient = Clock::now() < deadline;
      if (patient && (told || Clock::now() < deadline - limit + kPatience)) continue;
      const auto missing = missing_ranks(meeting, place);
      if (patient) {
        told = true;
        // Nobody lower is there who could say it.
        if (std::ranges::count_if(missing, [&](int other) { return other < place.rank; }) == place.rank) {
          tell("rank " + std::to_string(place.rank) + " waits for " + rank_names(missing));
        }
        continue;
      }
      auto seconds = std::to_string(limit.count() / 1000) + "." + std::to_string(limit.count() % 1000 / 100);
      return Error{Errc::timed_out,
                   rank_names(missing) + " did not come within " + seconds + " s (--join_timeout)"};
    }
  }
  return {};
}

}  // namespace

Result<Membership> join(const InitOptions& options, const Place& place,
                        const dlaunch::Environment& environment, const Tell& tell) {
  Membership membership;
  if (place.world_size == 1) return membership;
  auto url = parse_init_url(options.url);
  if (!url) return std::move(url).error();
  const auto deadline = Clock::now() + options.timeout;
  auto found = find(*url, place, environment, deadline, options.timeout, tell);
  if (!found) return std::move(found).error();
  auto come = claim(*found->place, place);
  if (come) come = await_all(*found->place, place, deadline, options.timeout, tell);
  if (!come) {
    const auto server = found->place->served_by();
    if (come.error().code != Errc::unreachable || !server) return std::move(come).error();
    return std::move(come).error().under("rank " + std::to_string(*server) + " is gone or silent");
  }
  membership.address = found->address;
  membership.rendezvous = std::move(found->place);
  return membership;
}

}  // namespace trainer
