// The system calls that kernels above our floor (4.18) may lack, each with its fallback left to the
// caller. DLAUNCH_PRETEND_ENOSYS=pidfd_open,close_range in the environment makes them fail as on an
// old kernel, so that the fallbacks can be tested on a new one.
#pragma once

#include <sys/types.h>

namespace dlaunch::kernel {

// Reads the pretend switch once, at the start of the program.
void pretend(const char* missing_calls);

// A descriptor for the process (5.3), close-on-exec; -1 and errno ENOSYS without.
int pidfd_open(pid_t pid);

// Marks every descriptor from `first` on close-on-exec (5.11; else by /proc/self/fd). System calls
// only and no allocation: for use between fork and exec.
bool close_on_exec_from(int first);

// Raises the soft limit on open files to the hard one: a worker takes three descriptors, a session one.
void raise_open_file_limit();

}  // namespace dlaunch::kernel
