#include "dlaunch/port_holder.hpp"

#include <gtest/gtest.h>

namespace dlaunch {
namespace {

constexpr const char* kTable =
    "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
    "   0: 0100007F:733C 0100007F:9C40 01 00000000:00000000 00:00000000 00000000  1000        0 111 1 0 20 4\n"
    "   1: 00000000:733C 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 222 1 0 100 0\n"
    "   2: 00000000:0016 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 333 1 0 100 0\n"
    "   3: 0100007F:733C 0100007F:9C42 06 00000000:00000000 00:00000000 00000000     0        0 0 3 0\n";

TEST(PortHolder, FindsTheListeningSocketFirst) {
  EXPECT_EQ(sockets_at(kTable, 0x733C), (std::vector<std::string>{"222", "111"}));
}

TEST(PortHolder, ReadsTheTableOfIPv6) {
  EXPECT_EQ(sockets_at("heading\n"
                       "   0: 00000000000000000000000000000000:7148 00000000000000000000000000000000:0000 0A "
                       "00000000:00000000 00:00000000 00000000     0        0 444 1 0 100 0\n",
                       29000),
            (std::vector<std::string>{"444"}));
}

TEST(PortHolder, IsNobodyForAFreePort) {
  EXPECT_TRUE(sockets_at(kTable, 1).empty());
  EXPECT_TRUE(sockets_at("", 22).empty());
  EXPECT_TRUE(sockets_at("heading\nbroken line\n", 22).empty());
}

}  // namespace
}  // namespace dlaunch
