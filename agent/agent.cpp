#include "agent/agent.hpp"

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <boost/asio/post.hpp>
#include <random>

#include "agent/meeting.hpp"
#include "dlaunch/log.hpp"
#include "dlaunch/report.hpp"
#include "dlaunch/resolver.hpp"
#include "dlaunch/text.hpp"

namespace dlaunch {

namespace asio = boost::asio;
using namespace std::chrono_literals;

namespace {

constexpr auto kSecondSignal = 1s;
constexpr auto kConsoleAfterSignal = 5s;

bool is_stop_signal(const Job& job, int signal) { return job.stop_signals.count(signal) > 0; }

std::string random_id() {
  std::random_device device;
  return std::to_string(device()) + std::to_string(device());
}

}  // namespace

Agent::Agent(const Job& job, const Environment& environment, const SignalState& at_start,
             std::string log_base, int guard_line)
    : job_(job),
      environment_(environment),
      at_start_(at_start),
      log_base_(std::move(log_base)),
      console_(io_.get_executor(), [](const std::string& what) { log::warn(what); }),
      spawner_(at_start),
      guard_line_(io_, guard_line),
      signals_(io_) {}

Verdict Agent::run() {
  log::set_sink([this](std::string line) { console_.say(std::move(line)); });
  watch_guard();
  watch_signals();
  asio::post(io_, [this] { meet(); });
  io_.run();
  log::set_sink({});
  return verdict_.value_or(Verdict{});
}

// --- coming together ---

control::Hello Agent::hello() const {
  control::Hello hello;
  hello.version = DLAUNCH_VERSION;
  hello.session = random_id();
  hello.run_id = visible(job_.run_id);  // on the wire a text has to be UTF-8
  hello.node_rank = job_.node_rank.value_or(-1);
  hello.nnodes = job_.nnodes;
  hello.nproc = job_.nproc;
  hello.role = job_.role;
  hello.host = host_name();
  if (job_.nnodes > 1) hello.addresses = local_addresses();
  hello.pid = ::getppid();  // the guard: the one that people see
  return hello;
}

void Agent::meet() {
  bool asked_by_rank = job_.nnodes == 1 || job_.node_rank || job_.is_host;
  if (asked_by_rank && hosts_the_job(job_, {})) {
    if (auto open = become_host(); !open) {
      Error error = open.error();
      log::error(error.text, error.hint);
      end(Verdict{2}, "");
    }
    return;
  }
  uplink_ = std::make_unique<Uplink>(
      io_, job_,
      Uplink::Events{[this, asked_by_rank](const Addresses& meeting) {
                       if (asked_by_rank || cannot_host_ || !hosts_the_job(job_, meeting)) return false;
                       auto open = become_host();
                       cannot_host_ = !open;  // another node of this job on this host was faster, most likely
                       return !cannot_host_;
                     },
                     [this](control::Message message) { received(std::move(message)); },
                     [this](int exit_code, std::string why) { link_failed(exit_code, std::move(why)); }});
  uplink_->start(hello());
}

Result<> Agent::become_host() {
  auto host = std::make_unique<CoordinatorHost>(
      io_, job_,
      CoordinatorHost::Events{[this](control::Message message) { received(std::move(message)); },
                              [this] { end(verdict_.value_or(Verdict{}), report_); }});
  if (auto open = host->open(); !open) return open.error();
  host_ = std::move(host);
  host_->from_own_agent(hello());
  return {};
}

void Agent::tell(const control::Message& message) {
  if (alone_) return;
  if (host_) {
    host_->from_own_agent(message);
  } else if (uplink_) {
    uplink_->send(message);
  }
}

// --- what the coordinator says ---

void Agent::received(control::Message message) {
  if (alone_) return;
  std::visit([this](const auto& one) { on(one); }, message);
}

void Agent::on(const control::Welcome& message) { node_ = message.node_rank; }

void Agent::on(const control::Waiting& message) {
  std::string here;
  for (const auto& node : message.here) here += (here.empty() ? "" : ", ") + visible(node);
  log::say("waiting for node" + std::string(message.missing.size() == 1 ? " " : "s ") +
           rank_list(message.missing) + " of " + std::to_string(job_.nnodes) + " (here: " + here + "), " +
           time_left(std::chrono::milliseconds(message.left_ms)) + " left");
  if (node_ != 0 || warned_of_loopback_ || !is_loopback(job_.master_addr)) return;
  warned_of_loopback_ = true;
  log::warn(
      "'" + job_.master_addr +
      "' means this host to everyone: nodes on other hosts need an address of node 0 that they can reach");
}

void Agent::on(const control::Start& message) {
  if (!message.notice.empty()) log::say(visible(message.notice));
  round_ = message.round;
  stop_told_ = false;
  Round round{message.round, message.layout, node_, job_.master_addr, message.master_port, message.store};
  auto events = WorkerGroup::Events{[this](control::WorkerExited word) { tell(word); },
                                    [this, number = message.round](std::vector<std::string> stuck) {
                                      round_is_over(number, std::move(stuck));
                                    }};
  rounds_.push_back(std::make_unique<WorkerGroup>(io_, spawner_, console_, job_, environment_,
                                                  std::move(round), log_base_, std::move(events)));
  rounds_.back()->start();
  tell(control::Spawned{message.round});
}

void Agent::on(const control::Stop& message) {
  if (message.round != round_) return;
  stop_told_ = true;
  if (auto* group = workers()) group->stop(message.signal, std::chrono::milliseconds(message.grace_ms));
}

void Agent::on(const control::Finish& message) {
  verdict_ = Verdict{message.exit_code, message.signal};
  report_ = visible_lines(message.report);
  if (host_) return;  // the end comes when the others have answered
  uplink_->leave("");
  end(*verdict_, report_);
}

void Agent::on(const control::Refused& message) {
  // Only a node that hosts can be refused here: by its own coordinator.
  log::error(visible(message.reason));
  end(Verdict{2}, "");
}

void Agent::round_is_over(int round, std::vector<std::string> stuck) {
  if (alone_) return end(*verdict_, report_);
  if (stop_told_ || !stuck.empty()) {
    tell(control::Stopped{round, std::move(stuck)});
  } else {
    tell(control::Done{round});
  }
}

// --- signals ---

void Agent::watch_guard() {
  guard_line_.async_wait(asio::posix::descriptor_base::wait_read, [this](boost::system::error_code error) {
    if (error) return;
    std::uint8_t signal = 0;
    ssize_t bytes = ::recv(guard_line_.native_handle(), &signal, 1, MSG_DONTWAIT);
    if (bytes == 1) signalled(signal, Source::guard);
    if (bytes == 0 || (bytes < 0 && errno != EAGAIN && errno != EINTR)) return guard_is_gone();
    watch_guard();
  });
}

void Agent::watch_signals() {
  boost::system::error_code ignored;
  std::set<int> wanted = job_.stop_signals;
  wanted.insert({SIGUSR1, SIGUSR2, SIGWINCH});
  for (int signal : wanted) {
    if (!at_start_.is_ignored(signal)) signals_.add(signal, ignored);
  }
  ::sigprocmask(SIG_SETMASK, &at_start_.mask, nullptr);
  sigset_t open;
  sigemptyset(&open);
  for (int signal : wanted) sigaddset(&open, signal);
  sigaddset(&open, SIGCHLD);
  ::sigprocmask(SIG_UNBLOCK, &open, nullptr);
  struct Again {
    Agent& agent;
    void operator()(boost::system::error_code error, int signal) const {
      if (error) return;
      agent.signalled(signal, Source::own);
      agent.signals_.async_wait(*this);
    }
  };
  signals_.async_wait(Again{*this});
}

void Agent::signalled(int signal, Source source) {
  if (!is_stop_signal(job_, signal)) {
    if (auto* group = workers()) group->hand_on(signal);
    return;
  }
  if (ending_) return end_in_a_hurry();
  auto now = Clock::now();
  auto& first = first_signal_[static_cast<int>(source)];
  if (first && now - *first >= kSecondSignal) {
    if (auto* group = workers()) group->kill_now();
    if (!alone_ && round_ >= 0) tell(control::Signalled{signal});  // the other nodes need not wait either
    return;
  }
  if (!first) first = now;
  if (stop_signal_) return;
  stop_signal_ = signal;
  if (alone_) return;
  if (host_) return tell(control::Signalled{signal});
  if (uplink_ && uplink_->welcomed() && round_ >= 0) return tell(control::Signalled{signal});
  // Still joining: this node frees its place and ends, the others wait on.
  if (uplink_) uplink_->leave("stopped by " + signal_name(signal));
  end(Verdict{128 + signal, signal}, "");
}

// Without its guard a dlaunch would leave its workers behind if it were killed as well.
void Agent::guard_is_gone() {
  hurry_ = true;
  if (ending_) return end_in_a_hurry();
  const std::string why = "its guard process was killed";
  if (host_) return host_->give_up("node 0 (" + host_name() + ") lost: " + why);
  if (uplink_) uplink_->leave(why);
  stop_alone(125, "node " + std::to_string(std::max(node_, 0)) + " (" + host_name() + ") lost: " + why);
}

// --- the end ---

void Agent::link_failed(int exit_code, std::string why) {
  if (exit_code != 2) return stop_alone(exit_code, std::move(why));
  log::error(why);
  end(Verdict{2}, "");
}

// Nobody coordinates any more: this node ends its workers and itself.
void Agent::stop_alone(int exit_code, std::string reason) {
  if (alone_) return;
  alone_ = true;
  JobReport report;
  report.reason = reason;
  report.nnodes = job_.nnodes;
  verdict_ = Verdict{exit_code};
  report_ = render(report);
  auto* group = workers();
  if (!group) return end(*verdict_, report_);
  log::say(reason + "; stopping this node's workers");
  group->stop(SIGTERM, job_.shutdown_timeout);
}

void Agent::end(Verdict verdict, std::string report) {
  if (ending_) return;
  ending_ = true;
  verdict_ = verdict;
  if (!report.empty()) console_.say(std::move(report));
  if (hurry_ || stop_signal_ || verdict.signal) return end_in_a_hurry();
  console_.when_drained([this] { io_.stop(); });
}

// A console that nobody reads holds us up only as long as nobody asks us to end.
void Agent::end_in_a_hurry() {
  console_.drain(kConsoleAfterSignal);
  io_.stop();
}

}  // namespace dlaunch
