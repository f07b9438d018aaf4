// Where output goes, and how much dlaunch says itself.
#include <algorithm>

#include "draft.hpp"
#include "values.hpp"

namespace dlaunch {

namespace {

// A level as dlaunch calls it; empty for a word that is none. Python's names and numbers will do.
std::string level_of(const std::string& text) {
  std::string word = trimmed(text);
  std::transform(word.begin(), word.end(), word.begin(), [](unsigned char c) { return std::tolower(c); });
  if (word == "debug" || word == "10" || word == "notset") return "debug";
  if (word == "info" || word == "20") return "info";
  if (word == "warning" || word == "warn" || word == "30") return "warning";
  if (word == "error" || word == "critical" || word == "fatal" || word == "40" || word == "50")
    return "error";
  return "";
}

Result<void> settle_log_level(Draft& draft) {
  auto typed = draft.sources.find("log_level");
  auto claim = typed ? typed : draft.sources.bare("LOGLEVEL");
  draft.record_default("log_level");
  if (!claim) return {};
  std::string level = level_of(claim->text);
  if (level.empty()) {
    // LOGLEVEL is everybody's; a word in it that we do not know is not worth a job.
    if (!typed) return {};
    return bad(*claim, "is not a level", "give debug, info, warning or error");
  }
  draft.settings.log_level = level;
  draft.record("log_level", level, claim->source);
  return {};
}

Result<void> settle_log_folder(Draft& draft) {
  std::vector<Claim> claims;
  for (std::string_view flag : {"log_dir", "logdir"}) {
    if (auto claim = draft.sources.find(flag)) claims.push_back(*claim);
  }
  auto folder = decide(claims, "where log files go", read_text);
  if (!folder) return folder.error();
  draft.record_default("log_dir");
  if (!*folder) return {};
  draft.job().log_dir = (*folder)->first;
  draft.record("log_dir", (*folder)->first, (*folder)->second.source);
  if (draft.sources.find("logdir") && !draft.job().redirects.any() && !draft.job().tee.any()) {
    draft.settings.warnings.push_back("--logdir only names the folder: --redirects 3 or --tee 3 fill it");
  }
  return {};
}

Result<void> settle_log_file(Draft& draft) {
  Job& job = draft.job();
  auto file = draft.take<std::string>("log_file", "", read_text);
  if (!file) return file.error();
  job.log_file = *file;
  if (job.log_file.empty()) return {};
  bool tells_apart =
      job.log_file.find("%i") != std::string::npos || job.log_file.find("%r") != std::string::npos;
  if (job.nproc > 1 && !tells_apart) {
    return bad(*draft.sources.find("log_file"), "is one file for " + std::to_string(job.nproc) + " workers",
               "put %i (local index) or %r (rank) into its name");
  }
  return {};
}

}  // namespace

Result<void> settle_output(Draft& draft) {
  Job& job = draft.job();
  auto redirects = draft.take<StreamSpec>("redirects", {}, read_streams);
  if (!redirects) return redirects.error();
  job.redirects = *redirects;
  auto tee = draft.take<StreamSpec>("tee", {}, read_streams);
  if (!tee) return tee.error();
  job.tee = *tee;
  auto filter =
      draft.take<std::set<int>>("local_ranks_filter", {}, [](const Claim& claim) -> Result<std::set<int>> {
        if (claim.text.empty()) return std::set<int>{};
        return read_local_ranks(claim);
      });
  if (!filter) return filter.error();
  job.local_ranks_filter = *filter;
  if (auto folder = settle_log_folder(draft); !folder) return folder.error();
  if (auto file = settle_log_file(draft); !file) return file.error();
  return settle_log_level(draft);
}

}  // namespace dlaunch
