// Pipes, temporary folders and deadlines for the tests of what dlaunch writes.
#pragma once

#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <unistd.h>

#include <boost/asio/io_context.hpp>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <string_view>

namespace dlaunch {

constexpr std::chrono::seconds kDeadline{20};

// Runs handlers until `condition` holds; false if it never did.
inline bool run_until(boost::asio::io_context& io, auto condition) {
  auto deadline = std::chrono::steady_clock::now() + kDeadline;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    io.restart();
    io.run_for(std::chrono::milliseconds(1));
  }
  return true;
}

struct Pipe {
  Pipe() {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0) ::abort();
    read = ends[0];
    write = ends[1];
  }
  ~Pipe() {
    close_read();
    close_write();
  }
  Pipe(const Pipe&) = delete;
  void close_read() { shut(read); }
  void close_write() { shut(write); }

  // What lies in the pipe now.
  std::string take() {
    std::string all;
    char bytes[65536];
    pollfd ready{read, POLLIN, 0};
    while (::poll(&ready, 1, 0) > 0) {
      ssize_t n = ::read(read, bytes, sizeof bytes);
      if (n <= 0) break;
      all.append(bytes, static_cast<std::size_t>(n));
    }
    return all;
  }

  int read = -1, write = -1;

 private:
  static void shut(int& descriptor) {
    if (descriptor >= 0) ::close(descriptor);
    descriptor = -1;
  }
};

// All or nothing, blocking; false if nobody reads.
inline bool put(int descriptor, std::string_view bytes) {
  while (!bytes.empty()) {
    ssize_t n = ::write(descriptor, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return false;
    bytes.remove_prefix(static_cast<std::size_t>(n));
  }
  return true;
}

struct TemporaryFolder {
  TemporaryFolder() {
    char name[] = "/tmp/dlaunch-test-XXXXXX";
    if (!::mkdtemp(name)) ::abort();
    path = name;
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  std::string read(const std::string& name) const {
    std::ifstream file(path + "/" + name, std::ios::binary);
    std::ostringstream text;
    text << file.rdbuf();
    return text.str();
  }

  std::string path;
};

}  // namespace dlaunch
