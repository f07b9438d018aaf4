// Who descends from a process, read from /proc at the moment of asking. Only descendants are ever
// signalled by it, so a number that was given to a stranger in the meantime does no harm to them.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

namespace dlaunch {

struct ProcessEntry {
  pid_t pid = 0;
  pid_t parent = 0;
  pid_t group = 0;
  char state = '?';  // as in /proc/PID/stat: R, S, D, T, Z, …
};

// All living processes below `root`, zombies left out, parents first. Empty without /proc.
std::vector<ProcessEntry> descendants_of(pid_t root);

// The pids in `processes` (text of /proc/PID/stat) below `root`; the part without I/O.
std::vector<ProcessEntry> descendants_among(const std::vector<ProcessEntry>& processes, pid_t root);

// Parses one line of /proc/PID/stat; the program's name may hold blanks and parentheses.
bool parse_stat(const std::string& line, ProcessEntry& entry);

// '?' if there is no such process.
char state_of(pid_t pid);

}  // namespace dlaunch
