// train: a data-parallel reference trainer. Exit 0: trained, or stopped on request after saving; 1: a fault
// of this rank or a peer; 2: what was typed or exported cannot be used.
#include <fcntl.h>

#include <cstdio>
#include <iostream>

#include "trainer/loop/commands.hpp"

namespace {

int tell(const dlaunch::Error& error, int rank) {
  auto whose = rank < 0 ? std::string() : "rank " + std::to_string(rank) + ": ";
  std::fprintf(stderr, "train: error: %s%s\n", whose.c_str(), error.text.c_str());
  if (!error.hint.empty()) std::fprintf(stderr, "  %s\n", error.hint.c_str());
  return error.code == dlaunch::Errc::usage || error.code == dlaunch::Errc::not_found ? 2 : 1;
}

// A file that is opened later must not become the stream that somebody closed.
void open_missing_streams() {
  for (int fd : {0, 1, 2}) {
    if (::fcntl(fd, F_GETFD) < 0)
      (void)::open("/dev/null", fd == 0 ? O_WRONLY : O_RDONLY);  // using it still fails
  }
}

}  // namespace

int main(int argc, char** argv) {
  open_missing_streams();
  auto parsed = trainer::parse_options(argc, argv);
  if (!parsed) return tell(parsed.error(), -1);
  if (parsed->text) {
    std::cout << *parsed->text << std::flush;
    return std::cout ? 0 : tell(dlaunch::last_error("writing to stdout"), -1);
  }
  int rank = -1;
  auto done = trainer::run(parsed->options, dlaunch::Environment::of_this_process(), rank);
  return done ? 0 : tell(done.error(), rank);
}
