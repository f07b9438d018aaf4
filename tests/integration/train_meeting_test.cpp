#include <gmock/gmock.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <ctime>
#include <filesystem>
#include <fstream>
#include <thread>

#include "dlaunch/store/client.hpp"
#include "trainer/collective/meeting_place.hpp"
#include "trainer/collective/own_address.hpp"
#include "trainer/collective/store_server_thread.hpp"

namespace trainer {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;

class FilePlaceTest : public testing::Test {
 protected:
  std::unique_ptr<MeetingPlace> meet() {
    auto place = meet_at_file(path_, "p/", std::chrono::seconds(10));
    EXPECT_TRUE(place) << place.error().text;
    return std::move(*place);
  }
  void TearDown() override { ::unlink(path_.c_str()); }

  std::string path_ = testing::TempDir() + "meet-" + std::to_string(::getpid());
};

TEST_F(FilePlaceTest, WhatOneSetsTheOtherGets) {
  auto one = meet(), other = meet();
  ASSERT_TRUE(one->set("a", std::string("x\0y", 3)));
  EXPECT_EQ(*other->get("a", milliseconds(0)), std::string("x\0y", 3));
  ASSERT_TRUE(other->set("a", "newer"));
  EXPECT_EQ(*one->get("a", milliseconds(0)), "newer");
  EXPECT_TRUE(*one->has("a"));
  EXPECT_FALSE(*one->has("b"));
  auto missing = one->get("b", milliseconds(1));
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().code, Errc::timed_out);
  EXPECT_THAT(missing.error().text, HasSubstr("'b'"));
}

TEST_F(FilePlaceTest, OnlyTheFirstSettlesAKey) {
  auto one = meet(), other = meet();
  EXPECT_EQ(*one->settle("k", "first"), "first");
  EXPECT_EQ(*other->settle("k", "second"), "first");
}

TEST_F(FilePlaceTest, ManyWritersLoseNothing) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([this, t] {
      auto place = meet();
      for (int i = 0; i < 50; ++i) EXPECT_TRUE(place->set(std::to_string(t) + "/" + std::to_string(i), "v"));
      for (int other = 0; other < 4; ++other)
        EXPECT_TRUE(place->get(std::to_string(other) + "/49", std::chrono::seconds(20)));
    });
  }
  for (auto& thread : threads) thread.join();
}

TEST_F(FilePlaceTest, TheLastToLeaveDeletesIt) {
  auto one = meet(), other = meet();
  one.reset();
  EXPECT_TRUE(std::filesystem::exists(path_));
  other.reset();
  EXPECT_FALSE(std::filesystem::exists(path_));
}

TEST_F(FilePlaceTest, WhatAKilledProcessLeftIsDropped) {
  pid_t child = ::fork();
  if (child == 0) {
    auto place = meet_at_file(path_, "p/", std::chrono::seconds(10));
    (void)(*place)->set("stale", "1");
    ::raise(SIGKILL);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(std::filesystem::exists(path_));
  ASSERT_GT(std::filesystem::file_size(path_), 0u);
  EXPECT_FALSE(*meet()->has("stale"));
}

TEST_F(FilePlaceTest, WhatALivingProcessHoldsIsKept) {  // the control of the above
  auto living = meet();
  ASSERT_TRUE(living->set("fresh", "1"));
  EXPECT_TRUE(*meet()->has("fresh"));
}

TEST_F(FilePlaceTest, APieceOfARecordIsWrittenOver) {
  auto one = meet();
  ASSERT_TRUE(one->set("a", "1"));
  std::ofstream(path_, std::ios::app | std::ios::binary) << "\x05\x00";  // a writer was killed here
  auto other = meet();
  ASSERT_TRUE(other->set("b", "2"));
  EXPECT_EQ(*one->get("b", milliseconds(0)), "2");
  EXPECT_EQ(*one->get("a", milliseconds(0)), "1");
}

TEST_F(FilePlaceTest, APieceThatIsLongerThanTheNextRecordLeavesNothingBehind) {
  auto one = meet();
  const std::uint32_t lengths[2] = {1, 100};
  std::ofstream(path_, std::ios::app | std::ios::binary)
      << std::string(reinterpret_cast<const char*>(lengths), sizeof lengths) << std::string(60, '\xff');
  auto other = meet();
  ASSERT_TRUE(other->set("b", "2"));
  ASSERT_TRUE(other->set("c", "3"));
  EXPECT_EQ(*one->get("b", milliseconds(0)), "2");
  EXPECT_EQ(*one->get("c", milliseconds(0)), "3");
}

TEST_F(FilePlaceTest, SomebodyElsesFileIsRefusedAndStaysAsItIs) {
  for (const std::string content : {"my thesis", "train: of thought"}) {
    std::ofstream(path_, std::ios::binary) << content;
    auto place = meet_at_file(path_, "p/", std::chrono::seconds(1));
    ASSERT_FALSE(place);
    EXPECT_EQ(place.error().code, Errc::usage);
    EXPECT_THAT(place.error().text, HasSubstr(path_));
    EXPECT_EQ(std::filesystem::file_size(path_), content.size());
  }
}

TEST_F(FilePlaceTest, APromiseOfTooManyBytesIsRefused) {
  auto one = meet();
  std::ofstream(path_, std::ios::app | std::ios::binary) << std::string(100, 'x');
  auto found = one->has("a");
  ASSERT_FALSE(found);
  EXPECT_THAT(found.error().text, HasSubstr("offset"));
}

TEST_F(FilePlaceTest, AFolderThatDoesNotExistIsNamed) {
  auto place = meet_at_file("/nowhere/meet", "p/", std::chrono::seconds(1));
  ASSERT_FALSE(place);
  EXPECT_EQ(place.error().code, Errc::usage);
  EXPECT_THAT(place.error().text, HasSubstr("/nowhere/meet"));
}

using Clock = std::chrono::steady_clock;

std::uint16_t free_port() {
  const int fd = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  ::bind(fd, reinterpret_cast<sockaddr*>(&address), size);
  ::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size);
  ::close(fd);
  return ntohs(address.sin_port);
}

TEST(StoreServerThread, RestsWhileThereAreNoDescriptors) {
  const auto port = free_port();
  auto server = StoreServerThread::listen("127.0.0.1", port);
  ASSERT_TRUE(server) << server.error().text;
  const int lowest = ::dup(0);
  ::close(lowest);
  rlimit before{};
  ::getrlimit(RLIMIT_NOFILE, &before);
  const rlimit one_more{rlim_t(lowest) + 1, before.rlim_max};  // for the client
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &one_more), 0);
  const auto wall = Clock::now();
  const auto used = std::clock();
  const bool met(dlaunch::store::StoreClient::connect("127.0.0.1", port, milliseconds(500)));
  const double cpu = double(std::clock() - used) / CLOCKS_PER_SEC;
  const std::chrono::duration<double> passed = Clock::now() - wall;
  ::setrlimit(RLIMIT_NOFILE, &before);
  EXPECT_FALSE(met);
  EXPECT_LT(cpu, passed.count() / 2);
  EXPECT_TRUE(dlaunch::store::StoreClient::connect("127.0.0.1", port, std::chrono::seconds(20)));
}

TEST(OwnAddress, IsTheOneFromWhichThePeerIsReached) {
  EXPECT_EQ(*own_address("127.0.0.1", std::nullopt), "127.0.0.1");
  EXPECT_EQ(*own_address("::1", std::nullopt), "::1");
  EXPECT_EQ(*own_address("127.0.0.1", "lo"), "127.0.0.1");
  EXPECT_TRUE(own_address(std::nullopt, std::nullopt));
  auto refused = own_address("127.0.0.1", "nosuch0");
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().text, HasSubstr("nosuch0"));
}

TEST(LiteralOf, PrefersIpv4) {
  EXPECT_EQ(*literal_of("127.0.0.1"), "127.0.0.1");
  EXPECT_EQ(*literal_of("::1"), "::1");
  EXPECT_EQ(*literal_of("localhost"), "127.0.0.1");
  EXPECT_FALSE(literal_of("no.such.name.invalid"));
}

}  // namespace
}  // namespace trainer
