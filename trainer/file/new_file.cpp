#include "trainer/file/new_file.hpp"

#include <fcntl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <string_view>

namespace trainer {
namespace {

using dlaunch::last_error;
using dlaunch::Result;

constexpr std::string_view kEnding = ".tmp";
constexpr std::size_t kDigits = 16;

std::string beside(const std::string& path) {
  std::uint64_t number = 0;
  // A short answer leaves a number that may be taken, which O_EXCL tells.
  if (::getrandom(&number, sizeof number, 0) < 0) number = static_cast<std::uint64_t>(::getpid());
  char digits[kDigits + 1];
  std::snprintf(digits, sizeof digits, "%016llx", static_cast<unsigned long long>(number));
  return path + "." + digits + std::string(kEnding);
}

Result<> flush_folder(const std::string& path) {
  auto folder = std::filesystem::path(path).parent_path().string();
  if (folder.empty()) folder = ".";
  int fd = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return last_error("open " + folder);
  // EINVAL: a file system on which a folder needs no flushing.
  bool flushed = ::fsync(fd) == 0 || errno == EINVAL;
  Result<> done = flushed ? Result<>() : Result<>(last_error("fsync " + folder));
  ::close(fd);
  return done;
}

}  // namespace

Result<NewFile> NewFile::create(std::string path) {
  // What is no file (a device, a folder) is not replaced by one.
  struct stat status {};
  if (::stat(path.c_str(), &status) == 0 && !S_ISREG(status.st_mode)) {
    return dlaunch::Error{dlaunch::Errc::usage, path + " is there and is no file",
                          "give the path of a file, or of none"};
  }
  auto name = beside(path);
  int fd = ::open(name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (fd < 0) return last_error("open " + name);
  return NewFile(std::move(path), std::move(name), fd);
}

NewFile::~NewFile() {
  if (fd_ < 0) return;
  ::close(fd_);
  ::unlink(beside_.c_str());
}

dlaunch::Error NewFile::failed(const char* call) const { return last_error(std::string(call) + " " + path_); }

Result<> NewFile::write(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    auto wrote = ::write(fd_, bytes.data(), bytes.size());
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote < 0) return failed("write");
    bytes = bytes.subspan(static_cast<std::size_t>(wrote));
  }
  return {};
}

Result<> NewFile::appear() {
  if (::fsync(fd_) != 0) return failed("fsync");
  if (::rename(beside_.c_str(), path_.c_str()) != 0) return failed("rename");
  // Only now is nothing left to remove. Everything is on the disk: what close() says changes nothing.
  ::close(std::exchange(fd_, -1));
  return flush_folder(path_);
}

bool is_unfinished(const std::string& name, const std::string& of) {
  std::string_view rest = name;
  if (!rest.starts_with(of) || !rest.ends_with(kEnding)) return false;
  if (rest.size() != of.size() + 1 + kDigits + kEnding.size() || rest[of.size()] != '.') return false;
  auto digits = rest.substr(of.size() + 1, kDigits);
  return std::all_of(digits.begin(), digits.end(),
                     [](char c) { return ('0' <= c && c <= '9') || ('a' <= c && c <= 'f'); });
}

}  // namespace trainer
