// Bytes per second through pipe, WorkerOutput and console to /dev/null, beside `cat` reading the same
// pipe. One writer each, 80-byte lines unless told otherwise: output_bench [MiB] [line length].
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <boost/asio/io_context.hpp>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>

#include "agent/output_router.hpp"

namespace {

using namespace dlaunch;

std::string block_of(std::size_t line_length) {
  std::string block;
  while (block.size() < 64 * 1024) block += std::string(line_length - 1, 'x') + "\n";
  return block;
}

void fill(int descriptor, const std::string& block, std::size_t bytes) {
  for (std::size_t done = 0; done < bytes;) {
    ssize_t n = ::write(descriptor, block.data(), block.size());
    if (n < 0) break;
    done += static_cast<std::size_t>(n);
  }
  ::close(descriptor);
}

double cpu_seconds(int who) {
  rusage used{};
  ::getrusage(who, &used);
  return static_cast<double>(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
         static_cast<double>(used.ru_utime.tv_usec + used.ru_stime.tv_usec) / 1e6;
}

// The writer is a process of its own, so that its time is not ours.
pid_t start_writer(const OutputPipe& pipe, const std::string& block, std::size_t bytes) {
  pid_t writer = ::fork();
  if (writer == 0) {
    ::close(pipe.read);
    fill(pipe.write, block, bytes);
    ::_exit(0);
  }
  ::close(pipe.write);
  return writer;
}

void row(const char* name, std::size_t bytes, double wall, double cpu) {
  double megabytes = static_cast<double>(bytes) / 1e6;
  std::printf("%-28s %8.0f MB/s   %8.0f MB per CPU second\n", name, megabytes / wall, megabytes / cpu);
}

void through_router(const char* name, const WorkerLogs& logs, bool to_stderr, const std::string& block,
                    std::size_t bytes) {
  boost::asio::io_context io;
  auto worker = open_output_pipe(), other = open_output_pipe();
  pid_t writer = start_writer(*worker, block, bytes);
  ::close(other->write);
  int null = ::open("/dev/null", O_WRONLY | O_CLOEXEC);
  auto begin = std::chrono::steady_clock::now();
  double cpu = cpu_seconds(RUSAGE_SELF);
  {
    Console console(
        io.get_executor(), [](const std::string&) {}, null, null);
    WorkerOutput output(io.get_executor(), console, logs, to_stderr ? other->read : worker->read,
                        to_stderr ? worker->read : other->read,
                        [](const std::string& line) { std::puts(line.c_str()); });
    output.start([] {});
    io.run();
    console.drain(std::nullopt);
  }
  double wall = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  row(name, bytes, wall, cpu_seconds(RUSAGE_SELF) - cpu);
  ::waitpid(writer, nullptr, 0);
  ::close(null);
}

void through_cat(const std::string& block, std::size_t bytes) {
  auto pipe = open_output_pipe();
  ::fcntl(pipe->read, F_SETFL, 0);
  pid_t writer = start_writer(*pipe, block, bytes);
  auto begin = std::chrono::steady_clock::now();
  pid_t cat = ::fork();
  if (cat == 0) {
    int null = ::open("/dev/null", O_WRONLY);
    ::dup2(pipe->read, 0);
    ::dup2(null, 1);
    ::execlp("cat", "cat", static_cast<char*>(nullptr));
    ::_exit(127);
  }
  ::close(pipe->read);
  rusage used{};
  ::wait4(cat, nullptr, 0, &used);
  double wall = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  double cpu = static_cast<double>(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
               static_cast<double>(used.ru_utime.tv_usec + used.ru_stime.tv_usec) / 1e6;
  row("cat", bytes, wall, cpu);
  ::waitpid(writer, nullptr, 0);
}

}  // namespace

int main(int argc, char** argv) {
  std::size_t bytes = (argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 512) << 20;
  std::size_t line_length = argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 80;
  if (bytes == 0 || line_length == 0) return 2;
  std::string block = block_of(line_length);
  WorkerLogs plain, labelled;
  labelled.label_out = "[default0]:";
  through_cat(block, bytes);
  through_router("dlaunch, stdout", plain, false, block, bytes);
  through_router("dlaunch, stderr with tail", plain, true, block, bytes);
  through_router("dlaunch, stdout labelled", labelled, false, block, bytes);
  return 0;
}
