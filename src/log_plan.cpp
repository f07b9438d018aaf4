#include "dlaunch/log_plan.hpp"

#include <nlohmann/json.hpp>

namespace dlaunch {
namespace {

// %i: local index, %r: rank, %%: a percent sign; anything else stays as it is.
std::string expand(const std::string& pattern, int index, int rank) {
  std::string path;
  for (std::size_t i = 0; i < pattern.size(); ++i) {
    char next = pattern[i] == '%' && i + 1 < pattern.size() ? pattern[i + 1] : '\0';
    if (next != 'i' && next != 'r' && next != '%') {
      path += pattern[i];
      continue;
    }
    path += next == '%' ? "%" : std::to_string(next == 'i' ? index : rank);
    ++i;
  }
  return path;
}

const nlohmann::json* member(const nlohmann::json& object, const char* name) {
  if (!object.is_object()) return nullptr;
  auto found = object.find(name);
  return found == object.end() ? nullptr : &*found;
}

}  // namespace

WorkerLogs plan_logs(const Job& job, const Round& round, int local_rank, const std::string& base) {
  WorkerLogs logs;
  std::string folder = base.empty() ? ""
                                    : base + "/attempt_" + std::to_string(round.number) + "/" +
                                          std::to_string(local_rank) + "/";
  if (!base.empty() && !independent_copies(job)) {
    // Nobody is shown a temporary folder, so it needs no folders inside, which cost as much as a worker.
    std::string flat =
        base + "/error_" + std::to_string(round.number) + "_" + std::to_string(local_rank) + ".json";
    logs.error_file = wants_log_folder(job) ? folder + "error.json" : flat;
  }

  if (!job.log_file.empty()) {
    bool one_of_many = job.copies && job.copies->only;
    int index = one_of_many ? *job.copies->only : local_rank;
    int rank = independent_copies(job) ? index : round.layout.rank_of(round.node, local_rank).global;
    logs.out_file = logs.err_file = expand(job.log_file, index, rank);
    logs.console_out = logs.console_err = false;
    logs.append = round.number > 0;
    return logs;
  }

  auto redirected = job.redirects.of(local_rank);
  auto teed = job.tee.of(local_rank);
  bool shown = job.local_ranks_filter.empty() || job.local_ranks_filter.contains(local_rank);
  std::string label = "[" + job.role + std::to_string(local_rank) + "]:";
  auto plan = [&](StreamSpec::Streams stream, const char* name, std::string& file, bool& console,
                  std::string& tag) {
    bool to_file = ((redirected | teed) & stream) != 0 && !folder.empty();
    if (to_file) file = folder + name;
    console = shown && (!to_file || (teed & stream));
    if (console && (teed & stream)) tag = label;
  };
  plan(StreamSpec::out, "stdout.log", logs.out_file, logs.console_out, logs.label_out);
  plan(StreamSpec::err, "stderr.log", logs.err_file, logs.console_err, logs.label_err);
  return logs;
}

bool wants_log_folder(const Job& job) { return job.redirects.any() || job.tee.any() || !job.log_dir.empty(); }

std::string error_message(const std::string& json_text) {
  using Json = nlohmann::json;
  Json file = Json::parse(json_text, nullptr, /*allow_exceptions=*/false);
  const Json* message = member(file, "message");
  if (message && message->is_object()) message = member(*message, "message");
  return message && message->is_string() ? message->get<std::string>() : std::string();
}

}  // namespace dlaunch
