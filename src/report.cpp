#include "dlaunch/report.hpp"

#include <algorithm>
#include <cstdio>
#include <map>
#include <string_view>

#include "dlaunch/text.hpp"

namespace dlaunch {
namespace {

using std::string_view;

constexpr std::size_t kMaxLines = 20;    // of last words or of a message
constexpr std::size_t kMaxFailures = 8;  // told one by one; the rest is summed up

std::vector<std::string> split_lines(string_view text) {
  std::vector<std::string> lines;
  while (!text.empty()) {
    auto end = std::min(text.find('\n'), text.size());
    lines.emplace_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

// A heading, and the lines behind a bar; of too many the `newest` or the first.
std::string quoted(string_view heading, const std::vector<std::string>& lines, bool newest) {
  if (lines.empty()) return {};
  std::size_t from = newest && lines.size() > kMaxLines ? lines.size() - kMaxLines : 0;
  std::string text = "  " + std::string(heading) + ":\n";
  for (std::size_t i = from; i < std::min(lines.size(), from + kMaxLines); ++i)
    text += "    | " + visible(lines[i]) + "\n";
  return text;
}

std::string age(std::chrono::duration<double> after) {
  double seconds = std::max(after.count(), 0.0);
  char text[48];
  if (seconds < 99.95) {
    std::snprintf(text, sizeof text, "%.1f s", seconds);
  } else if (seconds < 3600) {
    int whole = static_cast<int>(seconds);
    std::snprintf(text, sizeof text, "%d min %d s", whole / 60, whole % 60);
  } else {
    auto minutes = static_cast<long long>(std::min(seconds, 1e12) / 60);
    std::snprintf(text, sizeof text, "%lld h %lld min", minutes / 60, minutes % 60);
  }
  return text;
}

// "SIGTERM" or "exit code 1"
std::string ending(const ExitStatus& status) {
  return status.signal ? signal_name(status.signal) : "exit code " + std::to_string(status.code);
}

std::string workers(const std::vector<int>& ranks, bool copies) {
  std::string noun = copies              ? ranks.size() == 1 ? "copy " : "copies "
                     : ranks.size() == 1 ? "rank "
                                         : "ranks ";
  return noun + rank_list(ranks);
}

// One line for each way to end, in order of the first rank; those that had to be killed come last.
std::string grouped(string_view heading, const std::vector<std::pair<int, ExitStatus>>& ended, bool copies) {
  std::map<std::string, std::vector<int>> ranks;
  for (const auto& [rank, status] : ended) ranks[ending(status)].push_back(rank);
  std::vector<std::pair<std::string, std::vector<int>>> groups(ranks.begin(), ranks.end());
  for (auto& group : groups) std::sort(group.second.begin(), group.second.end());
  std::sort(groups.begin(), groups.end(), [](const auto& a, const auto& b) {
    return std::pair(a.first == "SIGKILL", a.second.front()) <
           std::pair(b.first == "SIGKILL", b.second.front());
  });
  std::string text;
  for (const auto& [how, who] : groups) {
    text += "  " + std::string(heading) + ": " + workers(who, copies) + " (" + how + ")\n";
  }
  return text;
}

// What is known of a failure besides its first line.
std::string details(const WorkerFailure& failure) {
  std::string text;
  auto message = split_lines(failure.message);
  bool told = !message.empty() &&
              std::any_of(failure.last_words.begin(), failure.last_words.end(),
                          [&](const auto& line) { return line.find(message.front()) != std::string::npos; });
  if (!told) text += quoted("message", message, /*newest=*/false);
  text += quoted("last words", failure.last_words, /*newest=*/true);
  if (!failure.log.empty()) text += "  log: " + visible(failure.log) + "\n";
  return text;
}

}  // namespace

std::string describe(const WorkerName& worker, int nnodes) {
  std::string text;
  std::vector<std::string> facts;
  if (worker.copies > 0) {
    text = "copy " + std::to_string(worker.rank) + " of " + std::to_string(worker.copies);
  } else {
    text = "rank " + std::to_string(worker.rank);
    if (nnodes > 1) {
      facts.push_back("node " + std::to_string(worker.node) +
                      (worker.host.empty() ? "" : " " + visible(worker.host)));
    }
    facts.push_back("local " + std::to_string(worker.local));
  }
  if (worker.pid > 0) facts.push_back("pid " + std::to_string(worker.pid));
  for (std::size_t i = 0; i < facts.size(); ++i) text += (i == 0 ? " (" : ", ") + facts[i];
  return facts.empty() ? text : text + ")";
}

std::string describe(const WorkerFailure& failure, int nnodes) {
  std::string text = describe(failure.worker, nnodes) + " ";
  if (!failure.exec_error.empty()) return text + "could not be started: " + visible(failure.exec_error);
  ExitStatus bare = failure.status;
  bare.core = false;
  text += describe(bare) + " after " + age(failure.after);
  return failure.status.core ? text + ", core dumped" : text;
}

std::string render(const JobReport& report) {
  std::string text = "dlaunch: job failed: ";
  text += report.first ? describe(*report.first, report.nnodes) : visible(report.reason);
  text += "\n";
  bool copies = report.first && report.first->worker.copies > 0;
  if (report.first) text += details(*report.first);
  for (std::size_t i = 0; i < report.tied.size(); ++i) {
    text += "  at the same time: " + describe(report.tied[i], report.nnodes) + "\n";
    if (i < kMaxFailures) text += details(report.tied[i]);
  }
  std::vector<std::pair<int, ExitStatus>> more;
  for (std::size_t i = 0; i < report.others.size(); ++i) {
    const auto& other = report.others[i];
    if (i < kMaxFailures || !other.exec_error.empty()) {
      text += "  also failed: " + describe(other, report.nnodes) + "\n";
    } else {
      more.emplace_back(other.worker.rank, other.status);
    }
  }
  text += grouped("also failed", more, copies);
  text += grouped("stopped by dlaunch", report.stopped, copies);
  for (const auto& note : report.notes) {
    for (const auto& line : split_lines(note)) text += "  " + visible(line) + "\n";
  }
  return text;
}

std::string rank_list(std::vector<int> ranks) {
  std::sort(ranks.begin(), ranks.end());
  ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
  std::string text;
  for (std::size_t i = 0; i < ranks.size();) {
    std::size_t last = i;
    while (last + 1 < ranks.size() && ranks[last + 1] == ranks[last] + 1) ++last;
    if (last == i + 1) last = i;  // two in a row read better as two
    text += (text.empty() ? "" : ", ") + std::to_string(ranks[i]);
    if (last > i) text += "-" + std::to_string(ranks[last]);
    i = last + 1;
  }
  return text;
}

}  // namespace dlaunch
