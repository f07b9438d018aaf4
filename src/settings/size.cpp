// How many nodes and workers, and the copies that share GPUs.
#include <algorithm>

#include "dlaunch/device_list.hpp"
#include "draft.hpp"
#include "values.hpp"

namespace dlaunch {

namespace {

constexpr int kMostNodes = 100'000;
constexpr int kMostWorkers = 10'000;

// "2" or "2:2".
Result<int> read_nnodes(const Claim& claim) {
  auto colon = claim.text.find(':');
  if (colon == claim.text.npos) return read_int(claim, 1, kMostNodes, "number of nodes");
  auto least = whole_number(claim.text.substr(0, colon));
  auto most = whole_number(claim.text.substr(colon + 1));
  if (!least || !most) {
    return bad(claim, "is not a number of nodes",
               "give a whole number from 1 to " + std::to_string(kMostNodes));
  }
  if (*least != *most) {
    return bad(claim, "asks for a job that grows and shrinks, which is not built yet",
               "give one number: --nnodes " + std::to_string(*most));
  }
  return read_int(Claim{claim.tier, std::to_string(*most), claim.source}, 1, kMostNodes, "number of nodes");
}

Result<int> counted_gpus(const Draft& draft, const Claim& claim) {
  auto inherited = draft.environment.get("CUDA_VISIBLE_DEVICES");
  int files = static_cast<int>(draft.machine.gpus().size());
  int visible = inherited ? static_cast<int>(visible_devices(*inherited).size()) : files;
  if (visible > 0) return visible;
  std::string why = inherited ? "CUDA_VISIBLE_DEVICES='" + *inherited + "' shows none"
                              : "CUDA_VISIBLE_DEVICES is not set and there is no /dev/nvidia0";
  return bad(claim, "finds no GPU: " + why, "give the number of workers: --nproc_per_node 1");
}

Result<int> read_nproc(const Draft& draft, const Claim& claim) {
  std::string hint = "give a whole number from 1 to " + std::to_string(kMostWorkers) + ", or gpu, cpu, auto";
  if (claim.text == "gpu") return counted_gpus(draft, claim);
  if (claim.text == "cpu") return std::max(1, draft.machine.cpus());
  if (claim.text == "auto") {
    if (auto gpus = counted_gpus(draft, claim)) return *gpus;
    return std::max(1, draft.machine.cpus());
  }
  auto count = read_int(claim, 1, kMostWorkers, "number of workers");
  if (!count) return Error{Errc::usage, count.error().text, hint};
  return *count;
}

Error not_with_copies(const Claim& copies, const Claim& other, std::string_view hint) {
  return Error{Errc::usage, shown(other) + " cannot be used with " + shown(copies), std::string(hint)};
}

Result<void> check_copies_alone(Draft& draft, const Claim& count, bool group) {
  auto typed = [&](std::string_view flag) -> std::optional<Claim> {
    return draft.sources.typed(flag) ? draft.sources.find(flag) : std::nullopt;
  };
  if (auto nproc = typed("nproc_per_node")) {
    return not_with_copies(count, *nproc, "the number of copies is the number of workers");
  }
  if (auto nnodes = typed("nnodes")) {
    auto nodes = read_nnodes(*nnodes);
    if (!nodes) return nodes.error();
    if (*nodes > 1) return not_with_copies(count, *nnodes, "copies share the GPUs of one node");
  }
  if (auto restarts = typed("max_restarts"); restarts && !group) {
    auto number = read_int(*restarts, 0, 1'000'000, "number of restarts");
    if (!number) return number.error();
    if (*number > 0) return not_with_copies(count, *restarts, "only --process_group copies are restarted");
  }
  return {};
}

// --standalone overrides the number of nodes too, unless that is of a better tier.
Result<void> settle_nnodes(Draft& draft) {
  Job& job = draft.job();
  draft.record_default("nnodes");
  auto nnodes = draft.sources.find("nnodes");
  auto standalone = draft.standalone ? draft.sources.find("standalone") : std::nullopt;
  if (standalone && nnodes && nnodes->tier < standalone->tier) draft.standalone = false;
  if (draft.standalone) {
    draft.record("nnodes", "1", "derived from " + standalone->source);
    auto typed = nnodes ? read_nnodes(*nnodes) : Result<int>(1);
    bool differs = !typed || *typed != 1;
    std::string line = standalone->source + " overrides " + (nnodes ? shown(*nnodes) : "") + ": one node";
    if (differs)
      (nnodes->tier == Tier::flag ? draft.settings.warnings : draft.settings.debug).push_back(line);
    return {};
  }
  if (!nnodes) return {};
  auto number = read_nnodes(*nnodes);
  if (!number) return number.error();
  job.nnodes = *number;
  draft.record("nnodes", std::to_string(job.nnodes), nnodes->source);
  return {};
}

Result<void> settle_nproc(Draft& draft) {
  Job& job = draft.job();
  draft.record_default("nproc_per_node");
  auto nproc = draft.sources.find("nproc_per_node");
  if (!nproc) return {};
  auto count = read_nproc(draft, *nproc);
  if (!count) return count.error();
  job.nproc = *count;
  bool word = !whole_number(nproc->text);
  if (word)
    draft.settings.debug.push_back("nproc_per_node=" + std::to_string(job.nproc) + " from=" + nproc->text);
  draft.record("nproc_per_node", std::to_string(job.nproc), nproc->source + (word ? " " + nproc->text : ""));
  return {};
}

}  // namespace

Result<bool> Draft::take_switch(std::string_view flag) {
  auto on = take<bool>(flag, false, read_switch);
  if (on) origins[std::string(flag)].value = *on ? "on" : "off";
  return on;
}

Result<void> settle_copies(Draft& draft) {
  auto group = draft.take_switch("process_group");
  if (!group) return group.error();
  auto keep_going = draft.take_switch("keep_going");
  if (!keep_going) return keep_going.error();
  auto stop_all = draft.take_switch("stop_all");
  if (!stop_all) return stop_all.error();

  auto count = draft.sources.find("process_num");
  auto index = draft.sources.find("process_index");
  if (!count) {
    for (std::string_view flag : {"process_num", "process_index"}) draft.record_default(flag);
    if (index)
      return Error{Errc::usage, shown(*index) + " needs --process_num", "give the number of copies too"};
    for (std::string_view flag : {"process_group", "keep_going"}) {
      auto claim = draft.sources.find(flag);
      bool on = flag == "keep_going" ? *keep_going : *group;
      if (!on) continue;
      return Error{Errc::usage, claim->source + " needs --process_num",
                   "it says how copies run: --process_num 2 " + claim->source};
    }
    return {};
  }

  Copies copies;
  auto number = read_int(*count, 1, kMostWorkers, "number of copies");
  if (!number) return number.error();
  copies.count = *number;
  copies.group = *group;
  if (index) {
    auto only = whole_number(index->text);
    if (!only || *only < 0 || *only >= copies.count) {
      return bad(*index, "is not one of 0 to " + std::to_string(copies.count - 1),
                 "copies are counted from 0, and " + shown(*count) + " says how many");
    }
    copies.only = static_cast<int>(*only);
  }
  if (copies.group && copies.only) {
    return Error{Errc::usage, "--process_index and --process_group cannot be used together",
                 "one dlaunch starts all ranks of the group"};
  }
  if (copies.group && *keep_going) {
    return Error{Errc::usage, "--keep_going and --process_group cannot be used together",
                 "a group cannot go on without one of its ranks"};
  }
  if (*keep_going && *stop_all) {
    return Error{Errc::usage, "--keep_going and --stop_all cannot be used together",
                 "leave out one of the two"};
  }
  copies.keep_going = !copies.group && !*stop_all;
  if (auto alone = check_copies_alone(draft, *count, copies.group); !alone) return alone.error();
  if (!copies.group && !*keep_going) {
    draft.record("keep_going", copies.keep_going ? "on" : "off",
                 *stop_all ? "derived from --stop_all" : "default");
  }
  draft.record("process_num", std::to_string(copies.count), count->source);
  draft.record("process_index", copies.only ? std::to_string(*copies.only) : "all",
               index ? index->source : "default");
  draft.job().copies = copies;
  return {};
}

Result<void> settle_size(Draft& draft) {
  Job& job = draft.job();
  auto role = draft.take<std::string>("role", "default", read_text);
  if (!role) return role.error();
  job.role = *role;

  auto standalone = draft.take_switch("standalone");
  if (!standalone) return standalone.error();
  draft.standalone = *standalone;
  if (job.copies) {
    job.nnodes = 1;
    job.nproc = job.copies->only ? 1 : job.copies->count;
    draft.record("nnodes", "1", "derived from --process_num");
    draft.record("nproc_per_node", std::to_string(job.nproc), "derived from --process_num");
    return {};
  }
  if (auto nnodes = settle_nnodes(draft); !nnodes) return nnodes.error();
  return settle_nproc(draft);
}

}  // namespace dlaunch
