#include "dlaunch/worker_env.hpp"

namespace dlaunch {

namespace {

// The worker's number on its node; a copy that runs alone keeps its place among all copies.
int index_of(const Job& job, int local_rank) {
  return job.copies && job.copies->only ? *job.copies->only : local_rank;
}

int local_rank_shown(const Job& job, int local_rank) {
  return independent_copies(job) || job.gpu_bind == GpuBind::virtual_rank ? 0 : local_rank;
}

void set_devices(Environment& environment, const Job& job, int index) {
  const char* name = "CUDA_VISIBLE_DEVICES";
  if (job.gpu_bind == GpuBind::none) return;
  bool inherited = environment.has(name);
  if (job.gpus.empty()) {
    if (!inherited) environment.set(name, "");
  } else if (job.gpu_bind != GpuBind::node) {
    environment.set(name, job.gpus[static_cast<std::size_t>(index) % job.gpus.size()]);
  } else if (!inherited) {
    std::string list;
    for (const auto& gpu : job.gpus) list += (list.empty() ? "" : ",") + gpu;
    environment.set(name, list);
  }
}

// torch 2.2 renamed it and reads the old name as well: who set one of the two meant both.
void set_nccl_error_handling(Environment& environment) {
  const std::string old_name = "NCCL_ASYNC_ERROR_HANDLING", new_name = "TORCH_" + old_name;
  auto value = environment.get(new_name);
  if (!value) value = environment.get(old_name);
  for (const auto& name : {old_name, new_name}) {
    if (!environment.has(name)) environment.set(name, value.value_or("1"));
  }
}

void erase_all(Environment& environment, std::string_view beginning) {
  std::vector<std::string> names;
  for (const auto& [name, value] : environment.values()) {
    if (name.starts_with(beginning)) names.push_back(name);
  }
  for (const auto& name : names) environment.erase(name);
}

void set_alone(Environment& environment) {
  erase_all(environment, "TORCHELASTIC_");
  for (const char* name : {"MASTER_ADDR", "MASTER_PORT", "GROUP_RANK", "GROUP_WORLD_SIZE", "ROLE_NAME",
                           "ROLE_RANK", "ROLE_WORLD_SIZE"}) {
    environment.erase(name);
  }
  for (const char* name : {"RANK", "LOCAL_RANK", "NODE_RANK"}) environment.set(name, "0");
  for (const char* name : {"WORLD_SIZE", "LOCAL_WORLD_SIZE"}) environment.set(name, "1");
}

void set_ranks(Environment& environment, const Job& job, const Round& round, int local_rank,
               const std::string& error_file) {
  const Layout& layout = round.layout;
  const NodePlace& here = layout.nodes[static_cast<std::size_t>(round.node)];
  WorkerRank rank = layout.rank_of(round.node, local_rank);
  auto set = [&](const char* name, int value) { environment.set(name, std::to_string(value)); };
  set("RANK", rank.global);
  set("WORLD_SIZE", layout.world_size());
  set("LOCAL_RANK", local_rank_shown(job, local_rank));
  set("LOCAL_WORLD_SIZE", here.nproc);
  set("GROUP_RANK", round.node);
  set("GROUP_WORLD_SIZE", static_cast<int>(layout.nodes.size()));
  set("NODE_RANK", round.node);
  environment.set("ROLE_NAME", here.role);
  set("ROLE_RANK", rank.in_role);
  set("ROLE_WORLD_SIZE", layout.role_world_size(here.role));
  environment.set("MASTER_ADDR", round.master_addr);
  set("MASTER_PORT", round.master_port);
  set("TORCHELASTIC_RESTART_COUNT", round.number);
  set("TORCHELASTIC_MAX_RESTARTS", job.max_restarts);
  environment.set("TORCHELASTIC_RUN_ID", job.run_id);
  environment.set("TORCHELASTIC_USE_AGENT_STORE", round.store == StoreHost::agent ? "True" : "False");
  environment.set("TORCHELASTIC_ERROR_FILE", error_file);
  set_nccl_error_handling(environment);
}

// ${local_rank}, with its braces, is the only thing in the user's words that is ever replaced.
std::string with_local_rank(std::string text, int index) {
  const std::string macro = "${local_rank}", value = std::to_string(index);
  for (auto at = text.find(macro); at != text.npos; at = text.find(macro, at + value.size())) {
    text.replace(at, macro.size(), value);
  }
  return text;
}

}  // namespace

Environment worker_environment(const Job& job, const Round& round, int local_rank,
                               const Environment& inherited, const std::string& error_file) {
  Environment environment = inherited;
  environment.erase("DLAUNCH_TOKEN");
  // A worker of an outer job has a LOCAL_RANK; without one, PROCESS_NUM is the user's own variable.
  if (inherited.has("LOCAL_RANK")) {
    environment.erase("PROCESS_INDEX");
    environment.erase("PROCESS_NUM");
  }
  int index = index_of(job, local_rank);
  if (independent_copies(job)) {
    set_alone(environment);
  } else {
    set_ranks(environment, job, round, local_rank, error_file);
  }
  if (job.copies) {
    environment.set("PROCESS_INDEX", std::to_string(index));
    environment.set("PROCESS_NUM", std::to_string(job.copies->count));
  }
  set_devices(environment, job, index);
  if (job.omp_threads) environment.set("OMP_NUM_THREADS", std::to_string(*job.omp_threads));
  return environment;
}

std::vector<std::string> worker_arguments(const Job& job, const Round&, int local_rank) {
  const Program& program = job.program;
  int index = index_of(job, local_rank);
  std::vector<std::string> arguments;
  for (const auto& word : program.prefix) arguments.push_back(with_local_rank(word, index));
  if (job.copies && program.takes_injected) {
    for (const std::string& word : {std::string("--process_index"), std::to_string(index),
                                    std::string("--process_num"), std::to_string(job.copies->count)}) {
      arguments.push_back(word);
    }
  }
  if (!program.local_rank_flag.empty() && program.takes_injected) {
    arguments.push_back(program.local_rank_flag + "=" + std::to_string(local_rank_shown(job, local_rank)));
  }
  for (const auto& word : program.arguments) arguments.push_back(with_local_rank(word, index));
  return arguments;
}

}  // namespace dlaunch
