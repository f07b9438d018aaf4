#include "agent/verdict.hpp"

#include <signal.h>

#include <algorithm>

namespace dlaunch {

namespace {

bool by_itself(const WorkerEnd& end) {
  return !end.exited.stopped && (!end.exited.status.ok() || !end.exited.exec_error.empty());
}

bool is_candidate(const WorkerEnd& end) {
  return by_itself(end) || (end.exited.stopped && end.exited.evidence && !end.exited.status.ok());
}

// Times of one node share their error, so they compare exactly.
bool clearly_before(const WorkerEnd& a, const WorkerEnd& b) {
  auto error = a.node == b.node ? std::chrono::microseconds{} : a.error + b.error;
  return a.failed_at + error < b.failed_at;
}

int code_of(const WorkerEnd& end) { return end.exited.status.shell_code(); }

WorkerName name_of(const WorkerEnd& end, const Layout& layout, int copies) {
  return {.rank = end.exited.rank,
          .node = end.node,
          .host = layout.nodes.at(static_cast<std::size_t>(end.node)).host,
          .local = end.exited.local,
          .pid = end.exited.pid,
          .copies = copies};
}

WorkerFailure failure_of(const WorkerEnd& end, const Layout& layout, int copies) {
  return {.worker = name_of(end, layout, copies),
          .status = end.exited.status,
          .after = std::chrono::microseconds(end.exited.lived_us),
          .exec_error = end.exited.exec_error,
          .message = end.exited.message,
          .last_words = end.exited.last_words,
          .log = end.exited.log};
}

}  // namespace

void Verdicts::add(WorkerEnd end) {
  int rank = end.exited.rank;
  if (by_itself(end) && !trigger_) trigger_ = rank;
  ends_.insert_or_assign(rank, std::move(end));
}

const WorkerEnd* Verdicts::first() const {
  if (!trigger_) return nullptr;
  const WorkerEnd* best = &ends_.at(*trigger_);
  for (const auto& [rank, end] : ends_) {
    if (is_candidate(end) && clearly_before(end, *best)) best = &end;
  }
  return best;
}

bool Verdicts::could_not_start() const {
  const WorkerEnd* end = first();
  return end && !end->exited.exec_error.empty();
}

int Verdicts::may_be_a_stop() const {
  const WorkerEnd* end = first();
  if (!end || end->exited.stopped) return 0;
  int signal = end->exited.status.signal;
  return signal == SIGTERM || signal == SIGINT || signal == SIGHUP || signal == SIGQUIT ? signal : 0;
}

int Verdicts::exit_code() const {
  const WorkerEnd* named = first();
  if (!named) return 0;
  if (!named->exited.stopped) return code_of(*named);
  const WorkerEnd* earliest = &ends_.at(*trigger_);
  for (const auto& [rank, end] : ends_) {
    if (by_itself(end) && clearly_before(end, *earliest)) earliest = &end;
  }
  return code_of(*earliest);
}

JobReport Verdicts::report(const Layout& layout, int copies) const {
  JobReport report;
  report.nnodes = static_cast<int>(layout.nodes.size());
  const WorkerEnd* named = first();
  if (!named) return report;
  report.first = failure_of(*named, layout, copies);
  for (const auto& [rank, end] : ends_) {
    if (&end == named) continue;
    if (!is_candidate(end)) {
      if (end.exited.stopped) report.stopped.emplace_back(rank, end.exited.status);
      continue;
    }
    bool tie = !clearly_before(*named, end) && end.node != named->node;
    (tie ? report.tied : report.others).push_back(failure_of(end, layout, copies));
  }
  return report;
}

std::string Verdicts::headline(const Layout& layout, int copies) const {
  const WorkerEnd* named = first();
  if (!named) return "";
  std::string who = describe(name_of(*named, layout, copies), static_cast<int>(layout.nodes.size()));
  return who + " " + describe(named->exited.status);
}

}  // namespace dlaunch
