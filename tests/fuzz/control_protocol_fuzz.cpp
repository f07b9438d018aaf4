// Any bytes into the control channel's decoder. What it accepts must survive a second round trip.
#include <cstdlib>

#include "dlaunch/control/protocol.hpp"

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  std::string_view in(reinterpret_cast<const char*>(data), size);
  for (;;) {
    auto message = dlaunch::control::take_message(in);
    if (!message || !*message) return 0;
    std::string frame = dlaunch::control::encode(**message);
    std::string_view again = frame;
    auto second = dlaunch::control::take_message(again);
    if (!second || !*second || !again.empty()) std::abort();
  }
}
