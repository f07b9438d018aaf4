#include "agent/worker_group.hpp"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "dlaunch/log.hpp"
#include "dlaunch/process_tree.hpp"
#include "dlaunch/worker_env.hpp"

namespace dlaunch {

namespace asio = boost::asio;
using namespace std::chrono_literals;

namespace {

constexpr auto kAfterKill = 10s;
constexpr auto kKillAgain = 100ms;
constexpr auto kFirstWord = 3s;
constexpr auto kNextWord = 10s;
constexpr auto kEvidenceWindow = 5s;
constexpr std::size_t kMaxErrorFile = 1 << 20;

std::int64_t microseconds(std::chrono::steady_clock::duration d) {
  return std::chrono::duration_cast<std::chrono::microseconds>(d).count();
}

std::string read_bounded(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string text(kMaxErrorFile, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<std::size_t>(std::max<std::streamsize>(0, file.gcount())));
  return text;
}

// When a file was last written, on our clock.
std::optional<std::chrono::steady_clock::time_point> written_at(const std::string& path) {
  struct stat info {};
  if (path.empty() || ::stat(path.c_str(), &info) != 0 || info.st_size == 0) return std::nullopt;
  auto written = std::chrono::system_clock::time_point(
      std::chrono::seconds(info.st_mtim.tv_sec) + std::chrono::microseconds(info.st_mtim.tv_nsec / 1000));
  return std::chrono::steady_clock::now() - (std::chrono::system_clock::now() - written);
}

// A pipe or a file is the first worker's input; a terminal is not: the worker is in another session.
int input_of(bool first_of_job) {
  if (first_of_job && !::isatty(0) && ::fcntl(0, F_GETFD) >= 0) return -1;
  return ::open("/dev/null", O_RDONLY | O_CLOEXEC);
}

// An interpreter would be started all the same, and end with a code of its own.
Result<> script_is_readable(const Program& program) {
  if (program.kind != Program::Kind::python_script) return {};
  const std::string& script = program.prefix.back();
  if (::access(script.c_str(), R_OK) == 0) return {};
  Errc code = errno == ENOENT || errno == ENOTDIR ? Errc::not_found : Errc::not_executable;
  return Error{code, "'" + script + "': " + std::strerror(errno)};
}

}  // namespace

WorkerGroup::WorkerGroup(asio::io_context& io, Spawner& spawner, Console& console, const Job& job,
                         const Environment& environment, Round round, std::string log_base, Events events)
    : io_(io),
      spawner_(spawner),
      console_(console),
      job_(job),
      environment_(environment),
      round_(std::move(round)),
      log_base_(std::move(log_base)),
      events_(std::move(events)),
      timer_(io),
      children_(io, SIGCHLD) {}

// --- start ---

void WorkerGroup::start() {
  watch_children();
  int count = round_.layout.nodes.at(static_cast<std::size_t>(round_.node)).nproc;
  for (int local = 0; local < count; ++local) {
    if (!start_one(local)) break;
  }
  // Forked one after the other, through exec side by side.
  for (auto& worker : workers_) {
    if (worker->launch) confirm(*worker);
  }
  started_ = true;
  settle();
}

bool WorkerGroup::start_one(int local) {
  auto worker = std::make_unique<Worker>();
  worker->local = local;
  bool copies = independent_copies(job_);
  worker->rank =
      copies ? job_.copies->only.value_or(local) : round_.layout.rank_of(round_.node, local).global;
  worker->logs = plan_logs(job_, round_, local, log_base_);
  if (!worker->logs.error_file.empty() && wants_log_folder(job_)) {
    std::error_code ignored;
    std::filesystem::create_directories(std::filesystem::path(worker->logs.error_file).parent_path(),
                                        ignored);
  }
  SpawnRequest request;
  request.arguments = worker_arguments(job_, round_, local);
  request.environment = worker_environment(job_, round_, local, environment_, worker->logs.error_file);
  std::vector<int> to_close;
  request.in = input_of(round_.node == 0 && local == 0);
  if (request.in >= 0) to_close.push_back(request.in);
  auto connected = connect_output(*worker, request, to_close);
  auto readable = connected ? script_is_readable(job_.program) : connected;
  auto launch = readable ? spawner_.begin(request) : Result<Launch>(readable.error());
  for (int fd : to_close) ::close(fd);

  Worker& kept = *worker;
  kept.started = Clock::now();
  workers_.push_back(std::move(worker));
  if (!launch) {
    could_not_start(kept, launch.error());
    return false;
  }
  kept.launch = std::move(*launch);
  return true;
}

void WorkerGroup::confirm(Worker& worker) {
  auto child = spawner_.confirm(*std::exchange(worker.launch, std::nullopt));
  if (!child) return could_not_start(worker, child.error());
  worker.pid = child->pid;
  log::debug("round=" + std::to_string(round_.number) + " rank=" + std::to_string(worker.rank) +
             " pid=" + std::to_string(worker.pid) + " started");
  worker.output->start([this, &worker] { output_finished(worker); });
  if (child->pidfd < 0) return;
  worker.pidfd = std::make_unique<asio::posix::stream_descriptor>(io_, child->pidfd);
  watch(worker);
}

void WorkerGroup::could_not_start(Worker& worker, const Error& error) {
  worker.status = ExitStatus{.code = error.code == Errc::not_found        ? 127
                                     : error.code == Errc::not_executable ? 126
                                                                          : 125};
  worker.ended = worker.started;
  worker.told = true;
  worker.output.reset();
  auto word = word_about(worker);
  word.exec_error = error.text;
  events_.exited(std::move(word));
}

Result<> WorkerGroup::connect_output(Worker& worker, SpawnRequest& request, std::vector<int>& to_close) {
  auto err = open_output_pipe();
  if (!err) return err.error();
  to_close.push_back(request.err = err->write);
  OutputPipe out{-1, err->write};
  // Two streams in one file come through one pipe, which keeps their order.
  if (worker.logs.out_file.empty() || worker.logs.out_file != worker.logs.err_file) {
    auto own = open_output_pipe();
    if (!own) {
      to_close.push_back(err->read);
      return own.error();
    }
    out = *own;
    to_close.push_back(out.write);
  }
  request.out = out.write;
  worker.output = std::make_unique<WorkerOutput>(io_.get_executor(), console_, worker.logs, out.read,
                                                 err->read, [](const std::string& what) { log::warn(what); });
  return {};
}

// --- watching ---

void WorkerGroup::watch(Worker& worker) {
  worker.pidfd->async_wait(asio::posix::descriptor_base::wait_read,
                           [this, &worker](boost::system::error_code error) {
                             if (error || !worker.alive()) return;
                             check(worker);
                             if (worker.alive()) watch(worker);  // a wake-up for nothing
                           });
}

void WorkerGroup::watch_children() {
  children_.async_wait([this](boost::system::error_code error, int) {
    // A signal that was on its way when the round ended: its child may be one of the next round.
    if (error || over_) return;
    watch_children();
    for (auto& worker : workers_) {
      if (!worker->pidfd && worker->alive()) check(*worker);
    }
    reap_orphans();
    tell_of_stopped();
    settle();
  });
}

// A stopped worker looks like a job that hangs, and only we are told.
void WorkerGroup::tell_of_stopped() {
  siginfo_t info{};
  while (::waitid(P_ALL, 0, &info, WSTOPPED | WNOHANG) == 0 && info.si_pid != 0) {
    for (auto& worker : workers_) {
      if (worker->pid != info.si_pid || std::exchange(worker->told_asleep, true)) continue;
      log::say(name_of(*worker) + " was stopped by " + signal_name(info.si_status) + "; 'kill -CONT " +
               std::to_string(worker->pid) + "' lets it go on");
    }
    info = {};
  }
}

void WorkerGroup::check(Worker& worker) {
  siginfo_t info{};
  int failed = ::waitid(P_PID, static_cast<id_t>(worker.pid), &info, WEXITED | WNOHANG | WNOWAIT);
  if (failed && errno == ECHILD) return ended(worker, ExitStatus{.code = 125});  // never waited for in vain
  if (failed || info.si_pid == 0) return;
  // While it is not reaped its number is its group's alone.
  ::kill(-worker.pid, SIGTERM);
  ::kill(-worker.pid, SIGCONT);
  auto status = reap(worker.pid);
  if (::kill(-worker.pid, 0) == 0)
    worker.kill_rest = std::min(kill_at_, Clock::now() + job_.shutdown_timeout);
  ended(worker, status.value_or(ExitStatus{.code = 125}));
}

void WorkerGroup::ended(Worker& worker, ExitStatus status) {
  worker.status = status;
  worker.ended = Clock::now();
  worker.was_stopped = stop_asked_.has_value();
  log::debug("round=" + std::to_string(round_.number) + " rank=" + std::to_string(worker.rank) +
             " pid=" + std::to_string(worker.pid) + " " + describe(status));
  boost::system::error_code ignored;
  if (worker.pidfd) worker.pidfd->close(ignored);
  if (!status.ok() || worker.was_stopped) events_.exited(word_about(worker));
  worker.output->close_when_idle();
  reap_orphans();  // they may have waited behind this worker
  settle();
}

void WorkerGroup::output_finished(Worker& worker) {
  // A stream that ends before its worker is no news: the worker closed it.
  if (worker.alive()) return;
  settle();
}

// --- what is told ---

std::string WorkerGroup::name_of(const Worker& worker) const {
  if (independent_copies(job_))
    return "copy " + std::to_string(worker.rank) + " (pid " + std::to_string(worker.pid) + ")";
  return "rank " + std::to_string(worker.rank) + " (pid " + std::to_string(worker.pid) + ")";
}

control::WorkerExited WorkerGroup::word_about(const Worker& worker) const {
  control::WorkerExited word;
  word.round = round_.number;
  word.rank = worker.rank;
  word.local = worker.local;
  word.pid = std::max(worker.pid, 0);
  word.status = *worker.status;
  word.age_us = microseconds(Clock::now() - worker.ended);
  word.stopped = worker.was_stopped;
  word.lived_us = microseconds(worker.ended - worker.started);
  if (!worker.logs.err_file.empty()) word.log = worker.logs.err_file;
  return word;
}

void WorkerGroup::add_story(const Worker& worker, control::WorkerExited& word) const {
  word.last_words = worker.output->tail().lines();
  if (word.status.ok()) return;
  TimePoint failed = worker.ended;
  auto consider = [&](std::optional<TimePoint> at) {
    if (!at || *at < worker.started) return;
    bool before_stop = stop_asked_ && *at <= *stop_asked_ && *stop_asked_ - *at <= kEvidenceWindow;
    if (worker.was_stopped && !before_stop) return;
    word.evidence = true;
    failed = std::min(failed, *at);
  };
  consider(worker.output->tail().evidence());
  if (auto at = written_at(worker.logs.error_file)) {
    word.message = error_message(read_bounded(worker.logs.error_file));
    consider(at);
  }
  word.age_us = microseconds(Clock::now() - failed);
}

// --- the end of a round ---

bool WorkerGroup::all_ended() const {
  return std::none_of(workers_.begin(), workers_.end(), [](const auto& worker) { return worker->alive(); });
}

void WorkerGroup::stop(int signal, std::chrono::milliseconds grace) {
  if (over_) return;
  // Who ended before the stop, unseen so far, ended by itself.
  for (auto& worker : workers_) {
    if (worker->alive()) check(*worker);
  }
  if (over_) return;
  auto now = Clock::now();
  bool first = !stop_asked_;
  if (first) {
    stop_asked_ = now;
    next_word_ = now + kFirstWord;
  }
  kill_at_ = std::min(kill_at_, now + grace);
  if (signal != SIGKILL && first) {
    for (auto& worker : workers_) {
      if (!worker->alive()) continue;
      ::kill(-worker->pid, signal);
      ::kill(-worker->pid, SIGCONT);  // a stopped process must hear it
    }
  }
  if (kill_at_ <= now) kill_all_that_is_left();
  settle();
}

void WorkerGroup::hand_on(int signal) {
  for (auto& worker : workers_) {
    if (worker->alive()) ::kill(worker->pid, signal);
  }
}

void WorkerGroup::kill_all_that_is_left() {
  if (give_up_at_ == TimePoint::max()) give_up_at_ = Clock::now() + kAfterKill;
  for (auto& worker : workers_) {
    if (worker->alive()) ::kill(-worker->pid, SIGKILL);
  }
  for (const auto& entry : descendants_of(::getpid())) ::kill(entry.pid, SIGKILL);
}

// Looks at the first child that ended without taking it: if that is a worker, its own watch has to see
// it first, and calls us again.
void WorkerGroup::reap_orphans() {
  for (;;) {
    siginfo_t info{};
    if (::waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid == 0) return;
    bool is_worker = std::any_of(workers_.begin(), workers_.end(), [&](const auto& worker) {
      return worker->alive() && worker->pid == info.si_pid;
    });
    if (is_worker) return;
    reap(info.si_pid);
  }
}

void WorkerGroup::end_orphans() {
  auto now = Clock::now();
  if (kill_at_ == TimePoint::max()) {
    kill_at_ = now + job_.shutdown_timeout;  // after success: a full grace
    next_word_ = now + kFirstWord;
  }
  if (kill_at_ <= now) return kill_all_that_is_left();
  for (const auto& entry : descendants_of(::getpid())) {
    if (!asked_orphans_.insert(entry.pid).second) continue;
    ::kill(entry.pid, SIGTERM);
    ::kill(entry.pid, SIGCONT);
  }
}

// Called after every event: does what is due next on the way to "nothing is left".
void WorkerGroup::settle() {
  if (over_ || !started_) return;
  bool quiet = true;
  for (auto& worker : workers_) {
    if (worker->alive() || (worker->output && !worker->output->finished())) {
      quiet = false;
    } else if (!worker->told) {
      worker->told = true;
      if (!worker->status->ok() || worker->was_stopped) {
        auto word = word_about(*worker);
        add_story(*worker, word);
        events_.exited(std::move(word));
      }
    }
  }
  if (all_ended()) {
    reap_orphans();
    siginfo_t info{};
    bool children = ::waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) == 0;
    if (children) end_orphans();
    if (!children && !quiet) {
      // Nobody writes any more: what is in the pipes is read whether or not the console has room.
      for (auto& worker : workers_) {
        if (worker->output) worker->output->read_rest();
      }
    }
    if (!children && quiet) {
      over_ = true;
      timer_.cancel();
      children_.cancel();
      return events_.gone({});
    }
  }
  arm();
}

void WorkerGroup::arm() {
  bool killing = give_up_at_ != TimePoint::max();
  TimePoint next =
      std::min(next_word_, killing ? std::min(give_up_at_, Clock::now() + kKillAgain) : kill_at_);
  for (const auto& worker : workers_) next = std::min(next, worker->kill_rest);
  if (next == TimePoint::max()) return;
  if (armed_ == next) return;
  armed_ = next;
  timer_.expires_at(next);
  timer_.async_wait([this](boost::system::error_code error) {
    if (error || over_) return;
    armed_.reset();
    timer_fired();
  });
}

void WorkerGroup::timer_fired() {
  auto now = Clock::now();
  for (auto& worker : workers_) {
    if (worker->kill_rest > now) continue;
    worker->kill_rest = TimePoint::max();
    for (const auto& entry : descendants_of(::getpid())) {
      if (entry.group == worker->pid) ::kill(entry.pid, SIGKILL);
    }
  }
  if (kill_at_ <= now && (stop_asked_ || all_ended())) {
    if (give_up_at_ <= now) {
      std::vector<std::string> stuck;
      for (const auto& entry : descendants_of(::getpid())) {
        auto worker = std::find_if(workers_.begin(), workers_.end(),
                                   [&](const auto& w) { return w->pid == entry.pid; });
        stuck.push_back((worker == workers_.end() ? "pid " + std::to_string(entry.pid) : name_of(**worker)) +
                        ", state " + entry.state);
      }
      over_ = true;
      timer_.cancel();
      return events_.gone(std::move(stuck));
    }
    kill_all_that_is_left();
  }
  if (next_word_ <= now) say_whom_we_wait_for();
  settle();
}

std::string WorkerGroup::who_is_left() const {
  std::string names;
  for (const auto& worker : workers_) {
    if (worker->alive()) names += (names.empty() ? "" : ", ") + name_of(*worker);
  }
  if (!names.empty()) return names;
  for (const auto& entry : descendants_of(::getpid()))
    names += (names.empty() ? "left-over pid " : ", ") + std::to_string(entry.pid);
  return names;
}

void WorkerGroup::say_whom_we_wait_for() {
  next_word_ = Clock::now() + kNextWord;
  std::string who = who_is_left();
  if (who.empty()) return;
  auto left = std::chrono::duration_cast<std::chrono::seconds>(kill_at_ - Clock::now()).count();
  log::say("waiting for " + who + " to end" +
           (left > 0 ? ", SIGKILL in " + std::to_string(left) + " s" : " after SIGKILL"));
}

}  // namespace dlaunch
