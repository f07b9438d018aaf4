#include "trainer/data/mapped_file.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

namespace trainer {

Result<MappedFile> MappedFile::open(const std::string& path) {
  // O_NONBLOCK: a pipe of that name is refused below instead of being waited for.
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) {
    return dlaunch::last_error("open", errno == ENOENT ? Errc::usage : Errc::failed).under(quoted(path));
  }
  struct stat status {};
  if (::fstat(fd, &status) != 0) {
    Error error = dlaunch::last_error("stat").under(quoted(path));
    ::close(fd);
    return error;
  }
  if (!S_ISREG(status.st_mode)) {
    ::close(fd);
    return Error{Errc::usage, quoted(path) + " is not a regular file"};
  }
  const auto size = static_cast<std::size_t>(status.st_size);
  void* data = nullptr;
  if (size > 0) {
    data = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (data == MAP_FAILED) {
      Error error = dlaunch::last_error("mmap").under(quoted(path));
      ::close(fd);
      return error;
    }
    ::madvise(data, size, MADV_WILLNEED);  // a wish: without it pages come one by one
  }
  ::close(fd);
  return MappedFile({static_cast<const std::uint8_t*>(data), size});
}

MappedFile::MappedFile(MappedFile&& other) noexcept : bytes_(std::exchange(other.bytes_, {})) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(bytes_, other.bytes_);
  return *this;
}

MappedFile::~MappedFile() {
  if (!bytes_.empty()) ::munmap(const_cast<std::uint8_t*>(bytes_.data()), bytes_.size());
}

std::string quoted(const std::string& path) { return "'" + path + "'"; }

}  // namespace trainer
