// What runs, on which devices, with whose store, and how it ends.
#include <signal.h>

#include <tuple>

#include "dlaunch/device_list.hpp"
#include "draft.hpp"
#include "values.hpp"

namespace dlaunch {

namespace {

enum class Spelling { automatic, underscore, dash, none };

Result<Spelling> read_spelling(const Claim& claim) {
  if (claim.text == "auto") return Spelling::automatic;
  if (claim.text == "underscore") return Spelling::underscore;
  if (claim.text == "dash") return Spelling::dash;
  if (claim.text == "none") return Spelling::none;
  return bad(claim, "is no way to pass it", "give underscore, dash or none");
}

constexpr const char* kUnderscore = "--local_rank";
constexpr const char* kDash = "--local-rank";

// The flag and the origin of this choice.
std::pair<std::string, std::string> by_text(const Draft& draft, const Reading& reading, bool no_python,
                                            bool use_env) {
  if (draft.typed.invoked_as == "torchrun") return {"", "started as torchrun"};
  if (use_env) return {"", "derived from --use_env"};
  if (no_python || !draft.command.is_python) return {"", "default: not a Python script"};
  if (reading.underscore) return {kUnderscore, "default: the script's text names it"};
  if (reading.dash) return {kDash, "default: the script's text names it"};
  return {"", "default: the script's text names none"};
}

Result<void> settle_local_rank(Draft& draft, const Reading& reading, bool no_python) {
  Program& program = draft.job().program;
  auto use_env = draft.take_switch("use_env");
  if (!use_env) return use_env.error();
  auto spelling = draft.take<Spelling>("pass_local_rank", Spelling::automatic, read_spelling);
  if (!spelling) return spelling.error();
  auto claim = draft.sources.find("pass_local_rank");
  bool never = draft.typed.invoked_as == "torchrun";
  if (*spelling == Spelling::automatic || never) {
    auto [flag, why] = by_text(draft, reading, no_python, *use_env);
    program.local_rank_flag = flag;
    draft.record("pass_local_rank", flag.empty() ? "none" : flag == kDash ? "dash" : "underscore", why);
    if (never && claim && *spelling != Spelling::none && *spelling != Spelling::automatic) {
      draft.settings.warnings.push_back(shown(*claim) + " has no effect: torchrun never passes --local_rank");
    }
    return {};
  }
  program.local_rank_flag = *spelling == Spelling::underscore ? kUnderscore
                            : *spelling == Spelling::dash     ? kDash
                                                              : "";
  return {};
}

enum class StoreWish { automatic, agent, worker };

Result<StoreWish> read_store(const Claim& claim) {
  if (claim.text == "auto") return StoreWish::automatic;
  if (claim.text == "agent") return StoreWish::agent;
  if (claim.text == "worker") return StoreWish::worker;
  return bad(claim, "cannot host the store", "give auto, agent or worker");
}

enum class Bind { automatic, node, single, virtual_rank, none };

Result<Bind> read_bind(const Claim& claim) {
  if (claim.source.ends_with("virtual_local_rank") || claim.source.ends_with("VIRTUAL_LOCAL_RANK")) {
    return Bind::virtual_rank;
  }
  if (claim.text == "auto") return Bind::automatic;
  if (claim.text == "node") return Bind::node;
  if (claim.text == "single") return Bind::single;
  if (claim.text == "virtual") return Bind::virtual_rank;
  if (claim.text == "none") return Bind::none;
  return bad(claim, "is no way to share out GPUs", "give auto, node, single, virtual or none");
}

// Word and origin of the automatic choice.
std::pair<GpuBind, std::string> automatic_bind(const Draft& draft) {
  if (draft.settings.job.copies) return {GpuBind::single, "derived from --process_num"};
  if (draft.command.is_binary) return {GpuBind::single, "default: the program is a binary"};
  return {GpuBind::node, "default"};
}

const char* name_of(GpuBind bind) {
  switch (bind) {
    case GpuBind::node:
      return "node";
    case GpuBind::single:
      return "single";
    case GpuBind::virtual_rank:
      return "virtual";
    case GpuBind::none:
      return "none";
  }
  return "";
}

Result<void> settle_gpus(Draft& draft) {
  Job& job = draft.job();
  std::vector<Claim> claims;
  if (auto bind = draft.sources.find("gpu_bind")) claims.push_back(*bind);
  auto is_virtual = draft.take_switch("virtual_local_rank");
  if (!is_virtual) return is_virtual.error();
  if (*is_virtual) claims.push_back(*draft.sources.find("virtual_local_rank"));
  auto decided = decide(claims, "how GPUs are shared out", read_bind);
  if (!decided) return decided.error();
  Bind bind = *decided ? (*decided)->first : Bind::automatic;
  std::string source = *decided ? (*decided)->second.source : "";
  switch (bind) {
    case Bind::automatic:
      std::tie(job.gpu_bind, source) = automatic_bind(draft);
      break;
    case Bind::node:
      job.gpu_bind = GpuBind::node;
      break;
    case Bind::single:
      job.gpu_bind = GpuBind::single;
      break;
    case Bind::virtual_rank:
      job.gpu_bind = GpuBind::virtual_rank;
      break;
    case Bind::none:
      job.gpu_bind = GpuBind::none;
      break;
  }
  draft.record("gpu_bind", name_of(job.gpu_bind), source);

  auto inherited = draft.environment.get("CUDA_VISIBLE_DEVICES");
  int workers = job.copies ? job.copies->count : job.nproc;
  job.gpus = inherited ? listed_devices(*inherited) : draft.machine.gpus();
  int known = static_cast<int>(job.gpus.size());
  if (!inherited && known == 0) {
    for (int i = 0; i < workers; ++i) job.gpus.push_back(std::to_string(i));
  }
  bool counted_on = job.gpu_bind == GpuBind::node || job.gpu_bind == GpuBind::virtual_rank;
  if (known > 0 && known < workers && counted_on && !job.copies) {
    draft.settings.warnings.push_back(
        std::to_string(workers) + " workers, but " + std::to_string(known) + (known == 1 ? " GPU" : " GPUs") +
        (inherited ? " in CUDA_VISIBLE_DEVICES='" + *inherited + "'" : " found"));
  }
  return {};
}

Result<void> settle_omp(Draft& draft) {
  Job& job = draft.job();
  auto typed = draft.sources.find("omp_threads");
  if (typed) {
    auto threads = read_int(*typed, 1, 100'000, "number of threads");
    if (!threads) return threads.error();
    job.omp_threads = *threads;
    draft.record("omp_threads", std::to_string(*threads), typed->source);
    return {};
  }
  int workers = job.copies ? job.copies->count : job.nproc;
  if (auto inherited = draft.environment.get("OMP_NUM_THREADS")) {
    draft.record("omp_threads", *inherited, "OMP_NUM_THREADS");
  } else if (workers == 1) {
    draft.record("omp_threads", "unset", "default for one worker");
  } else {
    int cores = draft.machine.cores();
    job.omp_threads = std::max(1, cores / workers);
    draft.record("omp_threads", std::to_string(*job.omp_threads),
                 "default: " + std::to_string(cores) + (cores == 1 ? " core" : " cores") + " for " +
                     std::to_string(workers) + " workers");
  }
  return {};
}

}  // namespace

Result<void> settle_program(Draft& draft) {
  RunAs as;
  auto module = draft.take_switch("module");
  auto no_python = draft.take_switch("no_python");
  auto run_path = draft.take_switch("run_path");
  for (auto* read : {&module, &no_python, &run_path}) {
    if (!*read) return read->error();
  }
  as = {.module = *module, .no_python = *no_python, .run_path = *run_path};
  if (as.module && as.no_python) {
    return Error{Errc::usage, "--module and --no_python cannot be used together", "leave out one of the two"};
  }
  if (draft.typed.program.empty() || draft.typed.program[0].empty()) {
    return Error{Errc::usage,
                 draft.typed.program.empty() ? "no program to run" : "the program '' has no name",
                 "usage: dlaunch [flags] program [its arguments]; --help lists the flags"};
  }
  draft.command = make_command(draft.typed.program, as, draft.environment, draft.machine);
  Program& program = draft.job().program = draft.command.program;
  Reading reading = read_texts(draft.command, draft.environment, draft.machine);
  if (auto passed = settle_local_rank(draft, reading, as.no_python); !passed) return passed.error();
  bool injects = draft.job().copies || !program.local_rank_flag.empty();
  if (injects && !program.takes_injected) {
    std::string what = draft.job().copies ? "PROCESS_INDEX and PROCESS_NUM" : "LOCAL_RANK";
    draft.settings.warnings.push_back("'" + program.typed + "' runs another program: it gets " + what +
                                      " in its environment only");
  }

  auto wish = draft.take<StoreWish>("store", StoreWish::automatic, read_store);
  if (!wish) return wish.error();
  Job& job = draft.job();
  if (*wish == StoreWish::automatic) {
    bool own = opens_own_group(reading, program.arguments, job.master_port);
    job.store = own ? StoreHost::worker : StoreHost::agent;
    draft.record("store", own ? "worker" : "agent",
                 own ? "default: the program opens a group of its own" : "default");
  } else {
    job.store = *wish == StoreWish::worker ? StoreHost::worker : StoreHost::agent;
  }
  auto port = draft.take<std::uint16_t>("store_port", 0, read_port);
  if (!port) return port.error();
  job.store_port = *port;
  auto access = draft.take<bool>("store_access", true, [](const Claim& claim) -> Result<bool> {
    if (claim.text == "any") return true;
    if (claim.text == "joined")
      return bad(claim, "is not built yet", "leave the flag out: everybody may connect");
    return bad(claim, "is not an access rule", "give any or joined");
  });
  if (!access) return access.error();
  return {};
}

Result<void> settle_devices(Draft& draft) {
  if (auto gpus = settle_gpus(draft); !gpus) return gpus.error();
  return settle_omp(draft);
}

Result<void> settle_life(Draft& draft) {
  Job& job = draft.job();
  auto restarts = draft.take<int>(
      "max_restarts", 0, [](const Claim& c) { return read_int(c, 0, 1'000'000, "number of restarts"); });
  if (!restarts) return restarts.error();
  job.max_restarts = *restarts;
  if (independent_copies(job) && job.max_restarts > 0) {
    job.max_restarts = 0;  // a variable's: as a flag it was refused
    draft.record("max_restarts", "0", "derived from --process_num");
  }

  auto signals =
      draft.take<std::set<int>>("signals_to_handle", {SIGTERM, SIGINT, SIGHUP, SIGQUIT}, read_signals);
  if (!signals) return signals.error();
  job.stop_signals = *signals;

  auto grace = draft.sources.find("shutdown_timeout");
  if (!grace) grace = draft.sources.bare("TORCH_ELASTIC_SHUTDOWN_TIMEOUT");
  if (!grace) {
    draft.record_default("shutdown_timeout");
    return {};
  }
  auto seconds = read_seconds(*grace, 0);
  if (!seconds) return seconds.error();
  job.shutdown_timeout = *seconds;
  draft.record("shutdown_timeout", grace->text, grace->source);
  return {};
}

}  // namespace dlaunch
