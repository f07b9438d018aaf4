// Where the nodes meet: backend, address, port, this node's rank, and for how long it waits.
#include "draft.hpp"
#include "values.hpp"

namespace dlaunch {

namespace {

constexpr std::uint16_t kStaticPort = 29500;    // torch's, where only an address is known
constexpr std::uint16_t kEndpointPort = 29400;  // torch's, where an endpoint names no port

enum class Backend { by_rank, by_arrival };

Result<Backend> read_backend(const Claim& claim) {
  if (claim.text == "static") return Backend::by_rank;
  if (claim.text == "c10d") return Backend::by_arrival;
  if (claim.text.starts_with("etcd")) {
    return bad(claim, "needs an etcd server, which dlaunch does not use",
               "--rdzv_backend c10d with the same --rdzv_id needs none");
  }
  return bad(claim, "is not a rendezvous backend", "give static or c10d");
}

Result<std::optional<bool>> read_is_host(const Claim& conf, const std::string& value) {
  for (const char* word : {"1", "true", "True", "t", "yes", "y"}) {
    if (value == word) return std::optional<bool>(true);
  }
  for (const char* word : {"0", "false", "False", "f", "no", "n"}) {
    if (value == word) return std::optional<bool>(false);
  }
  return bad(conf, "has is_host=" + value, "give is_host=true or is_host=false");
}

// timeout= governs static in torchrun, join_timeout= c10d; with one of them given it is that one.
Result<void> read_conf(Draft& draft, Backend backend, std::vector<Claim>& join_claims) {
  auto conf = draft.sources.find("rdzv_conf");
  if (!conf || conf->text.empty()) {
    draft.record_default("rdzv_conf");
    return {};
  }
  draft.record("rdzv_conf", conf->text, conf->source);
  auto pairs = read_pairs(*conf);
  if (!pairs) return pairs.error();
  std::optional<Claim> timeout, other;
  for (const auto& [key, value] : *pairs) {
    std::string governs = backend == Backend::by_rank ? "timeout" : "join_timeout";
    if (key == "timeout" || key == "join_timeout") {
      (key == governs ? timeout : other) = Claim{conf->tier, value, conf->source + " " + key + "="};
    } else if (key == "is_host") {
      auto is_host = read_is_host(*conf, value);
      if (!is_host) return is_host.error();
      draft.job().is_host = *is_host;
    } else {
      draft.settings.debug.push_back("ignored=" + conf->source + " key=" + key);
    }
  }
  if (timeout || other) join_claims.push_back(timeout ? *timeout : *other);
  return {};
}

Result<void> settle_waiting(Draft& draft, Backend backend) {
  std::vector<Claim> claims;
  if (auto own = draft.sources.find("join_timeout")) claims.push_back(*own);
  if (auto conf = read_conf(draft, backend, claims); !conf) return conf.error();
  auto join =
      decide(claims, "how long to wait for all nodes", [](const Claim& c) { return read_seconds(c, 1); });
  if (!join) return join.error();
  if (*join) {
    draft.job().join_timeout = (*join)->first;
    draft.record("join_timeout", (*join)->second.text, (*join)->second.source);
  } else {
    draft.record_default("join_timeout");
  }
  auto heartbeat = draft.take<std::chrono::seconds>("heartbeat_timeout", std::chrono::seconds(30),
                                                    [](const Claim& c) { return read_seconds(c, 1); });
  if (!heartbeat) return heartbeat.error();
  draft.job().heartbeat_timeout = *heartbeat;
  return {};
}

// What is typed about the place of node 0, in pieces that can be compared.
struct Place {
  std::vector<Claim> addresses, ports;  // the text is the whole endpoint where it came from one
  bool by_endpoint = false;
};

bool is_endpoint(const Claim& claim) {
  return claim.source.ends_with("rdzv_endpoint") || claim.source.ends_with("RDZV_ENDPOINT");
}

Place find_place(const Draft& draft, bool several_nodes) {
  Place place;
  if (auto endpoint = draft.sources.find("rdzv_endpoint"); endpoint && !endpoint->text.empty()) {
    place.addresses.push_back(*endpoint);
    auto read = read_endpoint(*endpoint);  // one that cannot be read matters only if it decides
    if (!read || read->port) place.ports.push_back(*endpoint);
    place.by_endpoint = true;
  }
  if (auto address = draft.sources.find("master_addr")) place.addresses.push_back(*address);
  if (auto port = draft.sources.find("master_port")) place.ports.push_back(*port);
  if (several_nodes) {
    if (auto address = draft.sources.bare("MASTER_ADDR")) place.addresses.push_back(*address);
    if (auto port = draft.sources.bare("MASTER_PORT")) place.ports.push_back(*port);
  }
  return place;
}

// An endpoint that does not decide the address says nothing about the port either.
Result<void> settle_address(Draft& draft, Place& place) {
  Job& job = draft.job();
  auto address =
      decide(place.addresses, "the address of node 0", [](const Claim& claim) -> Result<std::string> {
        if (!is_endpoint(claim)) return read_host(claim);
        auto endpoint = read_endpoint(claim);
        if (!endpoint) return endpoint.error();
        return endpoint->host;
      });
  if (!address) return address.error();
  if (!*address) {
    draft.record_default("master_addr");
    return {};
  }
  job.master_addr = (*address)->first;
  job.master_addr_given = true;
  const Claim& claim = (*address)->second;
  draft.record("master_addr", job.master_addr, (is_endpoint(claim) ? "derived from " : "") + claim.source);
  auto loses = [&](const Claim& other) { return is_endpoint(other) && other.tier > claim.tier; };
  if (std::erase_if(place.addresses, loses) > 0) {
    std::erase_if(place.ports, loses);
    place.by_endpoint = false;
  }
  return {};
}

Result<void> settle_port(Draft& draft, const Place& place) {
  Job& job = draft.job();
  bool several_nodes = job.nnodes > 1;
  auto port = decide(place.ports, "the port", [](const Claim& claim) -> Result<std::uint16_t> {
    if (!is_endpoint(claim)) return read_port(claim);
    auto endpoint = read_endpoint(claim);
    if (!endpoint) return endpoint.error();
    return *endpoint->port;
  });
  if (!port) return port.error();
  if (!*port) {
    job.master_port = !several_nodes ? 0 : place.by_endpoint ? kEndpointPort : kStaticPort;
    draft.record("master_port", several_nodes ? std::to_string(job.master_port) : "any free port",
                 several_nodes && place.by_endpoint ? "default behind --rdzv_endpoint" : "default");
    return {};
  }
  const auto& [number, claim] = **port;
  if (number == 0 && several_nodes) {
    return bad(claim, "asks for any free port, which several nodes cannot agree on",
               "give a port, the same on every node");
  }
  job.master_port = number;
  draft.record("master_port", number == 0 ? "any free port" : std::to_string(number),
               (is_endpoint(claim) ? "derived from " : "") + claim.source);
  return {};
}

Result<void> settle_node_rank(Draft& draft, Backend backend) {
  Job& job = draft.job();
  auto claim = draft.sources.find("node_rank");
  // torchrun reads no node rank with c10d, so there a variable that an operator exports says nothing;
  // what somebody typed or exported for dlaunch does.
  bool by_arrival = backend == Backend::by_arrival && job.nnodes > 1;
  bool exported = claim && claim->tier > Tier::own_variable;
  if (claim && (draft.standalone || (exported && (job.copies || by_arrival)))) {
    draft.settings.debug.push_back("ignored=" + claim->source + " value=" + claim->text);
    claim.reset();
  }
  if (!claim) {
    job.node_rank = by_arrival ? std::nullopt : std::optional<int>(0);
    by_arrival ? draft.record("node_rank", "assigned by arrival", "derived from --rdzv_backend")
               : draft.record_default("node_rank");
    return {};
  }
  if (claim->text.empty()) return bad(*claim, "is empty", "is a variable in the command unset?");
  auto rank = whole_number(claim->text);
  if (!rank) return bad(*claim, "is not a node rank", "nodes are counted from 0");
  if (*rank < 0 || *rank >= job.nnodes) {
    return bad(*claim, "is outside 0.." + std::to_string(job.nnodes - 1),
               "nodes are counted from 0, and --nnodes says how many: here " + std::to_string(job.nnodes));
  }
  if (*rank > 0 && !job.master_addr_given) {
    return bad(*claim, "needs --master_addr", "give the address of node 0, the same on every node");
  }
  job.node_rank = static_cast<int>(*rank);
  draft.record("node_rank", std::to_string(*rank), claim->source);
  return {};
}

}  // namespace

Result<void> settle_meeting(Draft& draft) {
  Job& job = draft.job();
  auto id = draft.take<std::string>("rdzv_id", "none", read_text);
  if (!id) return id.error();
  job.run_id = *id;

  // What --standalone overrides is not even looked at.
  auto backend =
      draft.take<Backend>("rdzv_backend", Backend::by_rank, [&](const Claim& claim) -> Result<Backend> {
        return draft.standalone ? Result<Backend>(Backend::by_rank) : read_backend(claim);
      });
  if (!backend) return backend.error();
  if (auto waiting = settle_waiting(draft, *backend); !waiting) return waiting.error();

  Place place;
  if (!draft.standalone) place = find_place(draft, job.nnodes > 1);
  auto endpoint = draft.sources.find("rdzv_endpoint");
  endpoint ? draft.record("rdzv_endpoint", endpoint->text, endpoint->source)
           : draft.record_default("rdzv_endpoint");
  if (auto address = settle_address(draft, place); !address) return address.error();
  if (auto port = settle_port(draft, place); !port) return port.error();
  if (draft.standalone) {
    for (std::string_view flag : {"master_addr", "master_port"}) {
      draft.record(flag, draft.origins[std::string(flag)].value, "derived from --standalone");
    }
  }
  if (auto rank = settle_node_rank(draft, *backend); !rank) {
    return rank.error();
  }
  if (!job.node_rank && !job.master_addr_given) {
    return Error{Errc::usage,
                 "--rdzv_backend c10d with " + std::to_string(job.nnodes) + " nodes needs --rdzv_endpoint",
                 "give host:port of one of the nodes, the same on every node"};
  }
  return {};
}

}  // namespace dlaunch
