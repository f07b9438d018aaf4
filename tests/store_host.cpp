// The store as an agent serves it, alone, for tests and benchmarks in other languages. Prints its port,
// then obeys lines of its input: "reset" (answered by "reset"), "used" (answered by "yes" or "no"). Ends
// with its input.
#include <cstdio>
#include <iostream>
#include <string>

#include "agent/net_thread.hpp"

int main(int argc, char** argv) {
  dlaunch::NetThread::Config config;
  config.addresses = {"127.0.0.1"};
  config.store = true;
  if (argc > 1) config.addresses = {argv[1]};
  auto thread = dlaunch::NetThread::open(std::move(config));
  if (!thread) {
    std::fprintf(stderr, "store_host: %s\n", thread.error().text.c_str());
    return 1;
  }
  std::printf("%d\n", (*thread)->port());
  std::fflush(stdout);
  for (std::string line; std::getline(std::cin, line);) {
    if (line == "reset") {
      (*thread)->reset_store([] {
        std::printf("reset\n");
        std::fflush(stdout);
      });
    } else if (line == "used") {
      std::printf("%s\n", (*thread)->store_was_used() ? "yes" : "no");
      std::fflush(stdout);
    }
  }
}
