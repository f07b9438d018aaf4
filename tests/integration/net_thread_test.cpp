#include "agent/net_thread.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <chrono>
#include <cstring>
#include <fstream>
#include <future>
#include <set>
#include <thread>

#include "../raw_client.hpp"
#include "../store_vectors.hpp"
#include "dlaunch/store/client.hpp"

namespace dlaunch {
namespace {

using namespace std::chrono_literals;
using dlaunch::test::RawClient;
using store::StoreClient;
using store::test::code;
using store::test::kValidate;
using store::test::u64;
using store::test::vec;

struct Control {
  int fd;
  std::string bytes;
  std::string peer;
};

NetThread::Config store_config() {
  NetThread::Config config;
  config.addresses = {"127.0.0.1"};
  config.store = true;
  return config;
}

std::unique_ptr<NetThread> open(NetThread::Config config = store_config()) {
  auto thread = NetThread::open(std::move(config));
  if (!thread) {
    ADD_FAILURE() << thread.error().text;
    return nullptr;
  }
  return std::move(*thread);
}

StoreClient client_of(const NetThread& thread) {
  auto client = StoreClient::connect("127.0.0.1", thread.port(), 10s);
  if (!client) {
    ADD_FAILURE() << client.error().text;
    std::abort();
  }
  return std::move(*client);
}

void reset(NetThread& thread) {
  std::promise<void> done;
  thread.reset_store([&done] { done.set_value(); });
  ASSERT_EQ(done.get_future().wait_for(10s), std::future_status::ready);
}

double seconds_of_cpu() {
  timespec now{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) / 1e9;
}

TEST(NetThread, HandsAControlConnectionOverWithItsBytes) {
  std::promise<Control> handed;
  NetThread::Config config = store_config();
  config.on_control = [&handed](int fd, std::string bytes, std::string peer) {
    handed.set_value({fd, std::move(bytes), std::move(peer)});
  };
  const auto thread = open(std::move(config));
  RawClient agent(thread->port());
  agent.send("DLN1 and more");
  auto future = handed.get_future();
  ASSERT_EQ(future.wait_for(10s), std::future_status::ready);
  const Control control = future.get();
  EXPECT_EQ(control.bytes, "DLN1 and more");
  EXPECT_EQ(control.peer, "127.0.0.1");
  EXPECT_TRUE(::fcntl(control.fd, F_GETFL) & O_NONBLOCK);
  EXPECT_TRUE(::fcntl(control.fd, F_GETFD) & FD_CLOEXEC);
  ASSERT_EQ(::send(control.fd, "yes", 3, 0), 3);
  EXPECT_EQ(agent.receive(3), "yes");
  ::close(control.fd);
}

TEST(NetThread, KnowsAControlConnectionThatComesByteByByte) {
  std::promise<Control> handed;
  NetThread::Config config = store_config();
  config.on_control = [&handed](int fd, std::string bytes, std::string peer) {
    handed.set_value({fd, std::move(bytes), std::move(peer)});
  };
  const auto thread = open(std::move(config));
  RawClient agent(thread->port());
  for (const char byte : std::string("DLN1")) agent.send(std::string(1, byte));
  auto future = handed.get_future();
  ASSERT_EQ(future.wait_for(10s), std::future_status::ready);
  const Control control = future.get();
  EXPECT_EQ(control.bytes, "DLN1");
  ::close(control.fd);
}

TEST(NetThread, ClosesWhoStopsInTheMiddleOfTheMagicAndKeepsWhoIsSilent) {
  NetThread::Config config = store_config();
  config.undecided_limit = 100ms;
  const auto thread = open(std::move(config));
  RawClient silent(thread->port()), stalled(thread->port());
  stalled.send("DLN");
  EXPECT_TRUE(stalled.ended());
  EXPECT_FALSE(silent.readable(200ms));
  silent.send(kValidate + code(7));  // a worker's connection after all
  EXPECT_EQ(silent.receive(8), u64(0));
}

TEST(NetThread, ClosesWhatIsNoStoreRequest) {
  const auto thread = open();
  RawClient scanner(thread->port());
  scanner.send("GET / HTTP/1.0\r\n\r\n");
  EXPECT_TRUE(scanner.ended());
  EXPECT_FALSE(thread->store_was_used());
}

TEST(NetThread, WithoutAStoreOnlyControlConnectionsStay) {
  NetThread::Config config = store_config();
  config.store = false;
  config.undecided_limit = 50ms;
  const auto thread = open(std::move(config));
  RawClient worker(thread->port()), silent(thread->port());
  worker.send(kValidate);
  EXPECT_TRUE(worker.ended());
  EXPECT_TRUE(silent.ended());
  thread->store_enabled(true);
  EXPECT_EQ(*client_of(*thread).num_keys(), 0);
}

TEST(NetThread, TurningTheStoreOffClosesItsSessions) {
  const auto thread = open();
  RawClient worker(thread->port());
  worker.send(kValidate + code(7));
  ASSERT_EQ(worker.receive(8).size(), 8u);
  thread->store_enabled(false);
  EXPECT_TRUE(worker.ended());
}

TEST(NetThread, AResetDropsKeysAndClosesWaitingClients) {
  const auto thread = open();
  EXPECT_FALSE(thread->store_was_used());
  StoreClient client = client_of(*thread);
  ASSERT_TRUE(client.set("key", "value"));
  ASSERT_EQ(*client.num_keys(), 1);
  EXPECT_TRUE(thread->store_was_used());
  RawClient waiting(thread->port()), half(thread->port());
  waiting.send(kValidate + code(7) + code(6) + u64(1) + vec("/never"));
  half.send(kValidate + code(7) + code(1) + u64(4) + "/k");
  ASSERT_EQ(waiting.receive(8).size(), 8u);  // what came with it has been served too
  ASSERT_EQ(half.receive(8).size(), 8u);
  reset(*thread);
  EXPECT_FALSE(thread->store_was_used());
  EXPECT_TRUE(waiting.ended());
  EXPECT_TRUE(half.ended());
  EXPECT_FALSE(client.num_keys());
  EXPECT_EQ(*client_of(*thread).num_keys(), 0);
  EXPECT_TRUE(thread->store_was_used());
}

TEST(NetThread, AStalledHalfRequestCostsTheOthersNothing) {
  const auto thread = open();
  RawClient stalled(thread->port());
  stalled.send(kValidate + code(1) + u64(4) + "/ke");
  StoreClient client = client_of(*thread);
  const auto start = std::chrono::steady_clock::now();
  for (int i = 1; i <= 100; ++i) ASSERT_EQ(*client.add("count", 1), i);
  EXPECT_LT(std::chrono::steady_clock::now() - start, 5s);
  stalled.send("y" + vec("value"));
  EXPECT_EQ(*client.get("key", 10s), "value");
}

TEST(NetThread, AClientKilledWhileItWaitsIsForgotten) {
  const auto thread = open();
  const pid_t child = ::fork();
  if (child == 0) {
    RawClient waiting(thread->port());
    waiting.send(kValidate + code(4) + vec("/here") + u64(1) + code(6) + u64(1) + vec("/key"));
    for (;;) ::pause();
  }
  StoreClient client = client_of(*thread);
  ASSERT_TRUE(client.wait({"here"}, 10s));
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  ASSERT_TRUE(client.set("key", "value"));
  EXPECT_EQ(*client.get("key", 10s), "value");
}

TEST(NetThread, AForkedChildThatHoldsASocketOfASessionDisturbsNobody) {
  const auto thread = open();
  StoreClient other = client_of(*thread);
  RawClient offender(thread->port());
  offender.send(kValidate + code(7));
  ASSERT_EQ(offender.receive(8), u64(0));
  const pid_t child = ::fork();
  if (child == 0) {
    for (;;) ::pause();
  }
  offender.send(code(99) + "which is never read");
  EXPECT_TRUE(offender.ended());
  const double cpu = seconds_of_cpu();
  for (int i = 1; i <= 100; ++i) EXPECT_EQ(*other.add("count", 1), i);
  EXPECT_FALSE(RawClient(thread->port()).readable(100ms));  // long enough to see it spin
  EXPECT_LT(seconds_of_cpu() - cpu, 0.09);
  EXPECT_EQ(*client_of(*thread).add("count", 1), 101) << "its number is used again";
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
}

TEST(NetThread, TwoHundredFiftySixClientsMeet) {
  const auto thread = open();
  std::vector<RawClient> clients;
  for (int i = 0; i < 256; ++i) {
    clients.emplace_back(thread->port());
    clients.back().send(kValidate + code(18) + vec("/barrier") + u64(256));
  }
  for (RawClient& client : clients) EXPECT_EQ(client.receive(1), std::string(1, '\0'));
  EXPECT_EQ(*client_of(*thread).get("barrier", 10s), "256");
}

TEST(NetThread, ALargeValueReachesAllWhoAskForIt) {
  const auto thread = open();
  std::string value(8 << 20, '\0');
  for (std::size_t i = 0; i < value.size(); ++i) value[i] = static_cast<char>(i * 31 >> 7);
  std::vector<StoreClient> clients;
  for (int i = 0; i < 8; ++i) clients.push_back(client_of(*thread));
  ASSERT_TRUE(clients[0].set("large", value));
  for (StoreClient& client : clients) EXPECT_TRUE(*client.get("large", 30s) == value);
  (void)clients[0].set("larger", value + "x");  // over the limit of dialect 2
  EXPECT_FALSE(clients[0].num_keys());
}

// Asks for 256 MiB in answers and reads none of them for a while.
TEST(NetThread, AClientThatDoesNotReadHoldsUpNobodyAndLosesNothing) {
  const auto thread = open();
  StoreClient other = client_of(*thread);
  const std::string value(1 << 20, 'v');
  ASSERT_TRUE(other.set("value", value));
  RawClient slow(thread->port());
  std::string requests = kValidate;
  for (int i = 0; i < 256; ++i) requests += code(3) + vec("/value") + code(7);
  slow.send(requests);
  ASSERT_TRUE(slow.readable(10s));
  for (int i = 1; i <= 50; ++i) ASSERT_EQ(*other.add("count", 1), i);
  for (int i = 0; i < 256; ++i) {
    ASSERT_TRUE(slow.receive(8 + value.size()) == vec(value)) << i;
    ASSERT_EQ(slow.receive(8).size(), 8u);
  }
}

TEST(NetThread, NamesTheHolderOfATakenPort) {
  const auto first = open();
  NetThread::Config config = store_config();
  config.port = first->port();
  const auto second = NetThread::open(std::move(config));
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code, Errc::refused);
  std::string program;
  std::ifstream("/proc/self/comm") >> program;
  EXPECT_EQ(second.error().text, "port " + std::to_string(first->port()) + " is taken by " + program +
                                     " (pid " + std::to_string(::getpid()) + ")");
  NetThread::Config everywhere;
  everywhere.port = first->port();
  const auto third = NetThread::open(std::move(everywhere));
  ASSERT_FALSE(third);
  EXPECT_THAT(third.error().text, testing::HasSubstr("is taken by"));
}

TEST(NetThread, SeveralAddressesShareOnePort) {
  NetThread::Config config = store_config();
  config.addresses = {"127.0.0.1", "127.0.0.2", "::1", "127.0.0.1"};
  const auto thread = open(std::move(config));
  RawClient one(thread->port(), "127.0.0.1"), two(thread->port(), "127.0.0.2"),
      three(thread->port(), "127.0.0.3");
  EXPECT_TRUE(one.connected());
  EXPECT_TRUE(two.connected());
  EXPECT_FALSE(three.connected());
  EXPECT_TRUE(StoreClient::connect("::1", thread->port(), 10s));
}

TEST(NetThread, WithoutAddressesEveryOneIsBound) {
  NetThread::Config config;
  config.store = true;
  const auto thread = open(std::move(config));
  EXPECT_TRUE(RawClient(thread->port(), "127.0.0.7").connected());
  EXPECT_TRUE(StoreClient::connect("::1", thread->port(), 10s));
}

TEST(NetThread, AnAddressThatIsNoneIsAnError) {
  NetThread::Config config;
  config.addresses = {"localhost"};
  const auto thread = NetThread::open(std::move(config));
  ASSERT_FALSE(thread);
  EXPECT_EQ(thread.error().text, "'localhost' is no IPv4 or IPv6 address");
}

TEST(NetThread, OutOfDescriptorsItNeitherSpinsNorForgetsWhoWaits) {
  const auto thread = open();
  rlimit before{};
  ::getrlimit(RLIMIT_NOFILE, &before);
  RawClient waiting(thread->port());  // the last descriptor but one
  StoreClient sure = client_of(*thread);
  const int highest = ::dup(0);
  ::close(highest);
  const int client = ::socket(AF_INET, SOCK_STREAM, 0);
  ASSERT_LE(client, highest);
  rlimit none = before;
  none.rlim_cur = static_cast<rlim_t>(highest) + 1;
  ::setrlimit(RLIMIT_NOFILE, &none);
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(thread->port());
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const double cpu = seconds_of_cpu();
  ASSERT_EQ(::connect(client, reinterpret_cast<const sockaddr*>(&to), sizeof to), 0);  // by the kernel
  const std::string hello = kValidate + code(7);
  ASSERT_EQ(::send(client, hello.data(), hello.size(), 0), ssize_t(hello.size()));
  pollfd one{client, POLLIN, 0};
  EXPECT_EQ(::poll(&one, 1, 300), 0);
  EXPECT_LT(seconds_of_cpu() - cpu, 0.1);
  EXPECT_EQ(*sure.num_keys(), 0);
  ::setrlimit(RLIMIT_NOFILE, &before);
  EXPECT_EQ(::poll(&one, 1, 10000), 1);
  ::close(client);
}

std::set<std::string> threads() {
  std::set<std::string> out;
  DIR* dir = ::opendir("/proc/self/task");
  while (const dirent* entry = ::readdir(dir)) {
    if (entry->d_name[0] != '.') out.insert(entry->d_name);
  }
  ::closedir(dir);
  return out;
}

std::string blocked_signals(const std::string& thread) {
  std::ifstream file("/proc/self/task/" + thread + "/status");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("SigBlk:")) return line.substr(line.find_last_of("\t ") + 1);
  }
  return {};
}

TEST(NetThread, LeavesAllSignalsToTheMainThread) {
  const auto before = threads();
  const auto own = blocked_signals(std::to_string(::getpid()));
  const auto thread = open();
  for (const std::string& id : threads()) {
    if (before.contains(id)) continue;
    EXPECT_EQ(std::stoull(blocked_signals(id), nullptr, 16) & 0x3fffffff, 0x3ffbfeffu)
        << "all but KILL and STOP; SYS is kept by a sanitizer";
  }
  EXPECT_EQ(blocked_signals(std::to_string(::getpid())), own);
}

}  // namespace
}  // namespace dlaunch
