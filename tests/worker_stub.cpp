// A worker with a behaviour for every test. Its arguments are steps, done in order:
//
//   exit:N           exit with code N                 signal:N        die of signal N (default action)
//   out:TEXT         TEXT and a line end to stdout    err:TEXT        the same to stderr
//   raw:TEXT         TEXT to stdout without an end (\n \r \0 and \xHH are understood)
//   rawerr:TEXT      the same to stderr
//   env:NAME         NAME=value to stdout, "NAME unset" if it is not set
//   allenv           the whole environment, one a line
//   args             every argument after a "--" step, one a line, in <…>
//   argv             every argument, one a line, in <…>
//   fds              the numbers of its open descriptors, in one line
//   ignore:N         ignore signal N                  catch:N,CODE    exit with CODE when signal N comes
//   note:N,FILE      append "N\n" to FILE on signal N, go on
//   wait             until a signal ends it           touch:FILE      make FILE
//   await:FILE       until FILE exists                read            copies stdin to stdout
//   fork:FILE        a child in the same group that ignores SIGTERM; its pid to FILE; goes on
//   setsid:FILE      a child in its own session; its pid to FILE; goes on
//   daemon:FILE      a double-forked grandchild in its own session; its pid to FILE; goes on
//   rank:R:STEP      STEP only if RANK is R           round:N:STEP    STEP only in round N
//   index:I:STEP     STEP only if PROCESS_INDEX is I
//   --               the rest are not steps
//   --process_index I --process_num N   skipped: what --process_num injects is no step
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

extern char** environ;

namespace {

int exit_code_of[65];
std::string note_file;

std::string unescape(const std::string& text) {
  std::string plain;
  for (std::size_t i = 0; i < text.size(); ++i) {
    bool plain_byte = text[i] != '\\' || i + 1 == text.size();
    if (plain_byte) {
      plain += text[i];
      continue;
    }
    ++i;
    if (text[i] == 'n') {
      plain += '\n';
    } else if (text[i] == 'r') {
      plain += '\r';
    } else if (text[i] == '0') {
      plain += '\0';
    } else if (text[i] == 'x' && i + 2 < text.size()) {
      plain += static_cast<char>(std::stoi(text.substr(i + 1, 2), nullptr, 16));
      i += 2;
    } else {
      plain += text[i];
    }
  }
  return plain;
}

void put(int fd, const std::string& bytes) {
  for (std::size_t done = 0; done < bytes.size();) {
    ssize_t n = ::write(fd, bytes.data() + done, bytes.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) std::_Exit(74);
    done += static_cast<std::size_t>(n);
  }
}

void write_pid(const std::string& file) {
  std::string temporary = file + ".part";
  int fd = ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644);
  put(fd, std::to_string(::getpid()) + "\n");
  ::close(fd);
  std::rename(temporary.c_str(), file.c_str());
}

[[noreturn]] void linger(const std::string& file) {
  ::signal(SIGTERM, SIG_IGN);
  ::signal(SIGHUP, SIG_IGN);
  write_pid(file);
  for (;;) ::pause();
}

void await_file(const std::string& file) {
  struct stat info;
  while (::stat(file.c_str(), &info) != 0) ::usleep(5000);
}

void step(const std::string& text, int argc, char** argv, int position) {
  auto colon = text.find(':');
  std::string verb = text.substr(0, colon);
  std::string rest = colon == std::string::npos ? "" : text.substr(colon + 1);
  auto only_if = [&](const char* variable) {
    auto second = rest.find(':');
    const char* value = std::getenv(variable);
    if (value && rest.substr(0, second) == value) step(rest.substr(second + 1), argc, argv, position);
  };
  if (verb == "exit") {
    std::_Exit(std::stoi(rest));
  } else if (verb == "signal") {
    struct rlimit none {
      0, 0
    };
    ::setrlimit(RLIMIT_CORE, &none);
    int number = std::stoi(rest);
    ::signal(number, SIG_DFL);
    sigset_t all;
    sigemptyset(&all);
    ::sigprocmask(SIG_SETMASK, &all, nullptr);
    ::kill(::getpid(), number);
    ::pause();
  } else if (verb == "out") {
    put(1, rest + "\n");
  } else if (verb == "err") {
    put(2, rest + "\n");
  } else if (verb == "raw") {
    put(1, unescape(rest));
  } else if (verb == "rawerr") {
    put(2, unescape(rest));
  } else if (verb == "env") {
    const char* value = std::getenv(rest.c_str());
    put(1, value ? rest + "=" + value + "\n" : rest + " unset\n");
  } else if (verb == "allenv") {
    std::string all;
    for (char** entry = environ; *entry; ++entry) all += std::string(*entry) + "\n";
    put(1, all);
  } else if (verb == "args") {
    std::string all;
    int first = position + 1;
    while (first < argc && std::strcmp(argv[first], "--") != 0) ++first;
    for (int i = first + 1; i < argc; ++i) all += "<" + std::string(argv[i]) + ">\n";
    put(1, all);
  } else if (verb == "argv") {
    std::string all;
    for (int i = 1; i < argc; ++i) all += "<" + std::string(argv[i]) + ">\n";
    put(1, all);
  } else if (verb == "fds") {
    std::vector<int> open;
    DIR* folder = ::opendir("/proc/self/fd");
    int own = ::dirfd(folder);
    while (dirent* entry = ::readdir(folder)) {
      int fd = std::atoi(entry->d_name);
      if (entry->d_name[0] != '.' && fd != own) open.push_back(fd);
    }
    ::closedir(folder);
    std::sort(open.begin(), open.end());
    std::string line;
    for (int fd : open) line += (line.empty() ? "" : " ") + std::to_string(fd);
    put(1, line + "\n");
  } else if (verb == "ignore") {
    ::signal(std::stoi(rest), SIG_IGN);
  } else if (verb == "catch") {
    int number = std::stoi(rest);
    exit_code_of[number] = std::stoi(rest.substr(rest.find(',') + 1));
    ::signal(number, [](int n) { std::_Exit(exit_code_of[n]); });
  } else if (verb == "note") {
    note_file = rest.substr(rest.find(',') + 1);
    ::signal(std::stoi(rest), [](int n) {
      int fd = ::open(note_file.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0644);
      char line[3] = {static_cast<char>('0' + n / 10), static_cast<char>('0' + n % 10), '\n'};
      if (::write(fd, line, 3) < 0) std::_Exit(74);
      ::close(fd);
    });
  } else if (verb == "wait") {
    for (;;) ::pause();
  } else if (verb == "touch") {
    ::close(::open(rest.c_str(), O_WRONLY | O_CREAT, 0644));
  } else if (verb == "await") {
    await_file(rest);
  } else if (verb == "read") {
    char bytes[4096];
    for (ssize_t n; (n = ::read(0, bytes, sizeof bytes)) > 0;)
      put(1, std::string(bytes, static_cast<std::size_t>(n)));
  } else if (verb == "fork" || verb == "setsid" || verb == "daemon") {
    if (pid_t child = ::fork(); child == 0) {
      if (verb != "fork") ::setsid();
      if (verb == "daemon" && ::fork() != 0) std::_Exit(0);
      linger(rest);
    } else if (verb == "daemon") {
      ::waitpid(child, nullptr, 0);
    }
    await_file(rest);
  } else if (verb == "rank") {
    only_if("RANK");
  } else if (verb == "round") {
    only_if("TORCHELASTIC_RESTART_COUNT");
  } else if (verb == "index") {
    only_if("PROCESS_INDEX");
  } else {
    std::fprintf(stderr, "worker_stub: no such step: %s\n", text.c_str());
    std::_Exit(64);
  }
}

}  // namespace

int main(int argc, char** argv) {
  for (int i = 1; i < argc && std::strcmp(argv[i], "--") != 0; ++i) {
    bool injected =
        std::strcmp(argv[i], "--process_index") == 0 || std::strcmp(argv[i], "--process_num") == 0;
    injected ? static_cast<void>(++i) : step(argv[i], argc, argv, i);
  }
  return 0;
}
