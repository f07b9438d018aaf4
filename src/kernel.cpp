#include "dlaunch/kernel.hpp"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>

namespace dlaunch::kernel {

namespace {

bool no_pidfd_open = false;
bool no_close_range = false;

constexpr unsigned kCloseRangeCloexec = 4;

// opendir allocates, so the folder is read with the bare system call.
bool mark_by_proc(int first) {
  int folder = ::open("/proc/self/fd", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder < 0) return false;
  alignas(std::uint64_t) char entries[4096];
  for (;;) {
    long bytes = ::syscall(SYS_getdents64, folder, entries, sizeof entries);
    if (bytes <= 0) {
      ::close(folder);
      return bytes == 0;
    }
    for (long at = 0; at < bytes;) {
      // struct linux_dirent64: u64 inode, i64 offset, u16 length, u8 type, name.
      std::uint16_t length;
      std::memcpy(&length, entries + at + 16, sizeof length);
      int fd = 0;
      const char* digit = entries + at + 19;
      bool number = *digit >= '0' && *digit <= '9';
      for (; *digit >= '0' && *digit <= '9'; ++digit) fd = fd * 10 + (*digit - '0');
      if (number && fd >= first) ::fcntl(fd, F_SETFD, FD_CLOEXEC);
      at += length;
    }
  }
}

}  // namespace

void pretend(const char* missing_calls) {
  no_pidfd_open = missing_calls && std::strstr(missing_calls, "pidfd_open");
  no_close_range = missing_calls && std::strstr(missing_calls, "close_range");
}

int pidfd_open(pid_t pid) {
  if (no_pidfd_open) {
    errno = ENOSYS;
    return -1;
  }
  return static_cast<int>(::syscall(SYS_pidfd_open, pid, 0));  // close-on-exec by itself
}

bool close_on_exec_from(int first) {
  if (!no_close_range && ::syscall(SYS_close_range, first, ~0U, kCloseRangeCloexec) == 0) return true;
  return mark_by_proc(first);
}

void raise_open_file_limit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

}  // namespace dlaunch::kernel
