#include "dlaunch/process.hpp"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <boost/asio/io_context.hpp>
#include <boost/process/v2.hpp>
#include <boost/process/v2/posix/fork_and_forget_launcher.hpp>
#include <boost/process/v2/src.hpp>
#include <cerrno>
#include <cstring>

#include "dlaunch/kernel.hpp"

namespace dlaunch {

namespace bp = boost::process::v2;
namespace asio = boost::asio;

namespace {

// Runs in the child and never comes back: it calls exec itself, and leaves by _exit. Boost's own way from
// there closes descriptors by a call that kernels below 5.9 do not have, compares an entry with itself, so
// that sockets leak, and ends by exit(), which flushes a copy of the parent's buffers.
struct CleanChild {
  const SpawnRequest& request;
  const SignalState& at_start;
  const rlimit& open_files;
  pid_t parent;
  const char* file;
  int failure;  // where errno goes if exec fails

  template <class Launcher>
  bp::error_code on_exec_setup(Launcher& launcher, const bp::filesystem::path&, const char* const*& argv) {
    if (ready()) ::execve(file, const_cast<char* const*>(argv), const_cast<char* const*>(launcher.env));
    int reason = errno;
    while (::write(failure, &reason, sizeof reason) < 0 && errno == EINTR) {
    }
    ::_exit(127);
  }

 private:
  bool ready() {
    if (::setsid() < 0 || ::prctl(PR_SET_PDEATHSIG, SIGKILL) < 0) return false;
    if (::getppid() != parent) {  // it died before the parent-death signal was armed
      errno = ESRCH;
      return false;
    }
    return kernel::close_on_exec_from(3) && place(request.in, 0) && place(request.out, 1) &&
           place(request.err, 2) && ::setrlimit(RLIMIT_NOFILE, &open_files) == 0 && restore_signals();
  }

  static bool place(int from, int to) {
    if (from < 0) return true;
    return from == to ? ::fcntl(to, F_SETFD, 0) == 0 : ::dup2(from, to) >= 0;
  }

  bool restore_signals() {
    at_start.restore();
    return true;
  }
};

bool is_plain_file(const std::string& path) {
  struct stat info {};
  return ::stat(path.c_str(), &info) == 0 && !S_ISDIR(info.st_mode);
}

Error cannot_run(const std::string& name, int reason) {
  bool missing = reason == ENOENT || reason == ENOTDIR;
  return Error{missing ? Errc::not_found : Errc::not_executable, "'" + name + "': " + std::strerror(reason)};
}

}  // namespace

struct Spawner::Context {
  asio::io_context io{1};
};

Spawner::Spawner(const SignalState& at_start) : at_start_(at_start), context_(std::make_unique<Context>()) {
  ::getrlimit(RLIMIT_NOFILE, &open_files_);
  kernel::raise_open_file_limit();
}
Spawner::~Spawner() = default;

Result<Child> Spawner::spawn(const SpawnRequest& request) {
  auto launch = begin(request);
  if (!launch) return launch.error();
  return confirm(*launch);
}

Result<Launch> Spawner::begin(const SpawnRequest& request) {
  auto file = find_executable(request.arguments.at(0), request.environment);
  if (!file) return file.error();
  std::vector<std::string> pairs;
  for (const auto& [name, value] : request.environment.values()) pairs.push_back(name + "=" + value);
  std::vector<const char*> envp;
  for (const auto& pair : pairs) envp.push_back(pair.c_str());
  envp.push_back(nullptr);
  std::vector<std::string> rest(request.arguments.begin() + 1, request.arguments.end());
  int failure[2];
  if (::pipe2(failure, O_CLOEXEC) != 0) return last_error("pipe");

  bp::posix::fork_and_forget_launcher launcher;
  launcher.env = envp.data();
  bp::error_code error;
  try {
    auto process =
        launcher(context_->io.get_executor(), error, bp::filesystem::path(*file), rest,
                 CleanChild{request, at_start_, open_files_, ::getpid(), file->c_str(), failure[1]});
    process.detach();  // its destructor would kill
  } catch (const boost::system::system_error&) {
    // Boost insists on a pidfd; without one the child runs all the same.
  }
  ::close(failure[1]);
  if (launcher.pid <= 0) {
    ::close(failure[0]);
    return Error{Errc::failed, "fork: " + (error ? error.message() : "failed")};
  }
  return Launch{request.arguments[0], launcher.pid, failure[0]};
}

Result<Child> Spawner::confirm(const Launch& launch) {
  int reason = 0;
  ssize_t bytes;
  while ((bytes = ::read(launch.failure, &reason, sizeof reason)) < 0 && errno == EINTR) {
  }
  ::close(launch.failure);
  if (bytes == 0) return Child{launch.pid, kernel::pidfd_open(launch.pid)};
  ::waitpid(launch.pid, nullptr, 0);  // a failed exec leaves a zombie
  if (reason == ENOENT) {             // the file was there a moment ago: its interpreter is not
    return Error{Errc::not_found, "'" + launch.name + "': its interpreter (first line) was not found"};
  }
  if (reason == EACCES || reason == ENOEXEC || reason == EPERM || reason == ELIBBAD) {
    return cannot_run(launch.name, reason);
  }
  return Error{Errc::failed, "'" + launch.name + "': " + std::strerror(reason)};
}

Result<std::string> find_executable(const std::string& name, const Environment& environment) {
  if (name.find('/') != std::string::npos) {
    if (::access(name.c_str(), F_OK) != 0) return cannot_run(name, errno);
    if (!is_plain_file(name)) return cannot_run(name, EISDIR);
    if (::access(name.c_str(), X_OK) != 0) return cannot_run(name, errno);
    return name;
  }
  std::string path = environment.get("PATH").value_or("/usr/local/bin:/usr/bin:/bin");
  int reason = ENOENT;
  for (std::size_t from = 0; !name.empty() && from <= path.size();) {
    std::size_t to = std::min(path.find(':', from), path.size());
    std::string folder = path.substr(from, to - from);
    std::string candidate = (folder.empty() ? "." : folder) + "/" + name;
    if (is_plain_file(candidate)) {
      if (::access(candidate.c_str(), X_OK) == 0) return candidate;
      reason = EACCES;
    }
    from = to + 1;
  }
  return cannot_run(name, reason);
}

std::optional<ExitStatus> reap(pid_t pid) {
  siginfo_t info{};
  if (::waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOHANG) != 0 || info.si_pid == 0) {
    return std::nullopt;
  }
  if (info.si_code == CLD_EXITED) return ExitStatus{.code = info.si_status};
  return ExitStatus{.signal = info.si_status, .core = info.si_code == CLD_DUMPED};
}

}  // namespace dlaunch
