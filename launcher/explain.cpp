#include "launcher/explain.hpp"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <vector>

#include "dlaunch/worker_env.hpp"

namespace dlaunch {

namespace {

struct WorkerPlan {
  std::vector<std::string> argv;
  std::map<std::string, std::string> set;  // new or changed
  std::vector<std::string> removed;
};

std::vector<WorkerPlan> plan_workers(const Job& job, const Environment& inherited) {
  std::vector<WorkerPlan> plans;
  Round round = assumed_round(job);
  for (int local = 0; local < job.nproc; ++local) {
    WorkerPlan plan;
    plan.argv = worker_arguments(job, round, local);
    Environment environment = worker_environment(job, round, local, inherited, "");
    for (const auto& [name, value] : environment.values()) {
      if (inherited.get(name) != value) plan.set.emplace(name, value);
    }
    for (const auto& [name, value] : inherited.values()) {
      if (!environment.has(name)) plan.removed.push_back(name);
    }
    plans.push_back(std::move(plan));
  }
  return plans;
}

// As a shell would take it back.
std::string quoted(const std::string& word) {
  const char* plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./=:,+@%";
  if (!word.empty() && word.find_first_not_of(plain) == word.npos) return word;
  std::string text = "'";
  for (char c : word) text += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return text + "'";
}

std::string padded(std::string text, std::size_t width) {
  text.resize(std::max(width, text.size() + 1), ' ');
  return text;
}

std::string title_of(const Job& job, const Round& round, int local) {
  if (independent_copies(job)) {
    int index = job.copies->only.value_or(local);
    return "copy " + std::to_string(index) + " of " + std::to_string(job.copies->count);
  }
  WorkerRank rank = round.layout.rank_of(round.node, local);
  return "rank " + std::to_string(rank.global) + " of " + std::to_string(round.layout.world_size()) +
         " (node " + std::to_string(round.node) + ", local " + std::to_string(local) + ")";
}

}  // namespace

Round assumed_round(const Job& job) {
  Round round;
  round.layout.nodes.assign(static_cast<std::size_t>(job.nnodes), NodePlace{"", job.nproc, job.role});
  round.node = job.node_rank.value_or(0);
  round.master_addr = job.master_addr;
  round.master_port = job.master_port ? job.master_port : 29500;
  round.store = job.store;
  return round;
}

std::string explain(const Settings& settings, const Environment& inherited) {
  const Job& job = settings.job;
  std::string text = "settings, each with its origin:\n";
  for (const auto& [flag, origin] : settings.origins) {
    text += "  " + padded(flag, 20) + padded(origin.value, 20) + origin.source + "\n";
  }
  Round round = assumed_round(job);
  bool finds_port = job.master_port == 0 && !independent_copies(job);
  std::string assumed;
  if (job.nnodes > 1) assumed += "assumed: all nodes are like this one\n";
  if (!job.node_rank) assumed += "assumed: this is node 0, it will be assigned\n";
  if (finds_port) assumed += "assumed: port 29500, any free one will be taken\n";
  if (!assumed.empty()) text += "\n" + assumed;
  auto plans = plan_workers(job, inherited);
  for (std::size_t local = 0; local < plans.size(); ++local) {
    text += "\n" + title_of(job, round, static_cast<int>(local)) + ":\n ";
    for (const auto& word : plans[local].argv) text += " " + quoted(word);
    text += "\n";
    for (const auto& [name, value] : plans[local].set) text += "    " + name + "=" + quoted(value) + "\n";
    for (const auto& name : plans[local].removed) text += "    " + name + " is removed\n";
  }
  return text;
}

std::string explain_json(const Settings& settings, const Environment& inherited) {
  nlohmann::ordered_json document;
  document["settings"] = nlohmann::ordered_json::object();
  for (const auto& [flag, origin] : settings.origins) {
    document["settings"][flag] = {{"value", origin.value}, {"origin", origin.source}};
  }
  document["warnings"] = settings.warnings;
  document["workers"] = nlohmann::ordered_json::array();
  for (const auto& plan : plan_workers(settings.job, inherited)) {
    document["workers"].push_back({{"argv", plan.argv}, {"set", plan.set}, {"removed", plan.removed}});
  }
  return document.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

}  // namespace dlaunch
