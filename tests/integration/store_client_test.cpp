#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <future>
#include <memory>
#include <thread>

#include "agent/net_thread.hpp"
#include "dlaunch/store/client.hpp"

namespace dlaunch::store {
namespace {

using namespace std::chrono_literals;

class StoreClientTest : public testing::Test {
 protected:
  void SetUp() override {
    NetThread::Config config;
    config.addresses = {"127.0.0.1"};
    config.store = true;
    auto thread = NetThread::open(std::move(config));
    ASSERT_TRUE(thread) << thread.error().text;
    thread_ = std::move(*thread);
  }
  StoreClient connect() {
    auto client = StoreClient::connect("127.0.0.1", thread_->port(), 10s);
    if (!client) ADD_FAILURE() << client.error().text;
    return std::move(*client);
  }
  std::unique_ptr<NetThread> thread_;
};

TEST_F(StoreClientTest, AsksEveryQuestion) {
  StoreClient a = connect();
  EXPECT_TRUE(a.set("key", "value"));
  EXPECT_EQ(*a.get("key", 1s), "value");
  EXPECT_EQ(*a.add("count", 5), 5);
  EXPECT_EQ(*a.add("count", -7), -2);
  EXPECT_TRUE(*a.check({"key", "count"}));
  EXPECT_FALSE(*a.check({"key", "missing"}));
  EXPECT_TRUE(a.wait({"key", "count"}, 1s));
  EXPECT_EQ(*a.compare_set("key", "value", "other"), "other");
  EXPECT_EQ(*a.compare_set("key", "value", "third"), "other");
  EXPECT_EQ(*a.num_keys(), 2);
  EXPECT_TRUE(*a.delete_key("count"));
  EXPECT_FALSE(*a.delete_key("count"));
  EXPECT_TRUE(a.append("key", "wise"));
  EXPECT_TRUE(a.multi_set({{"x", "1"}, {"y", ""}}));
  EXPECT_EQ(*a.multi_get({"x", "y", "key"}, 1s), (std::vector<std::string>{"1", "", "otherwise"}));
  EXPECT_TRUE(a.queue_push("queue", "first"));
  EXPECT_TRUE(a.queue_push("queue", "second"));
  EXPECT_EQ(*a.queue_len("queue"), 2);
  EXPECT_EQ(*a.queue_pop("queue", 1s), "first");
  EXPECT_EQ(*a.queue_len("queue"), 1);
  auto keys = *a.list_keys();
  std::sort(keys.begin(), keys.end());
  EXPECT_EQ(keys, (std::vector<std::string>{"key", "x", "y"}));
  EXPECT_EQ(*a.join(), 1);
  EXPECT_TRUE(a.barrier("alone", 1, 1s));
}

TEST_F(StoreClientTest, AWaitThatRunsOutLeavesTheConnectionWell) {
  StoreClient a = connect();
  for (int i = 1; i <= 3; ++i) {
    const Result<> came = a.wait({"missing", "too"}, 20ms);
    ASSERT_FALSE(came);
    EXPECT_EQ(came.error().code, Errc::timed_out);
    EXPECT_EQ(came.error().text, "'missing' and 1 more did not come within 20 ms");
    EXPECT_EQ(*a.add("count", 1), i);
  }
  EXPECT_EQ(a.barrier("meet", 2, 0ms).error().code, Errc::timed_out);
  EXPECT_EQ(a.queue_pop("queue", 10ms).error().code, Errc::timed_out);
  EXPECT_EQ(a.get("missing", 10ms).error().code, Errc::timed_out);
  EXPECT_EQ(*a.num_keys(), 2);
}

TEST_F(StoreClientTest, AWaitIsAnsweredByAnotherClient) {
  StoreClient a = connect();
  std::thread other([this] {
    StoreClient b = connect();
    EXPECT_TRUE(b.set("key", "value"));
    EXPECT_TRUE(b.barrier("meet", 2, 10s));
    EXPECT_TRUE(b.queue_push("queue", "element"));
  });
  EXPECT_EQ(*a.get("key", 10s), "value");
  EXPECT_TRUE(a.barrier("meet", 2, 10s));
  EXPECT_EQ(*a.queue_pop("queue", 10s), "element");
  other.join();
}

TEST_F(StoreClientTest, SaysSoWhenTheStoreIsGone) {
  StoreClient a = connect();
  thread_.reset();
  const auto answer = a.num_keys();
  ASSERT_FALSE(answer);
  EXPECT_EQ(answer.error().code, Errc::unreachable);
  EXPECT_FALSE(a.set("key", "value")) << "a connection that failed once is of no more use";
}

TEST_F(StoreClientTest, CarriesLargeValuesAndAnyBytes) {
  StoreClient a = connect();
  std::string value(8 << 20, 'v');
  value[77] = '\0';
  ASSERT_TRUE(a.set(std::string("\0k\xff", 3), value));
  EXPECT_TRUE(*a.get(std::string("\0k\xff", 3), 10s) == value);
}

// A socket that accepts and never answers.
class Mute {
 public:
  explicit Mute(bool listening) : fd_(::socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    ::bind(fd_, reinterpret_cast<sockaddr*>(&address), size);
    if (listening) ::listen(fd_, 8);
    ::getsockname(fd_, reinterpret_cast<sockaddr*>(&address), &size);
    port = ntohs(address.sin_port);
  }
  ~Mute() { ::close(fd_); }
  int fd() const { return fd_; }
  std::uint16_t port = 0;

 private:
  int fd_;
};

TEST(StoreClient, GivesUpOnAPeerThatDoesNotAnswer) {
  const Mute mute(/*listening=*/true);
  const auto client = StoreClient::connect("127.0.0.1", mute.port, 100ms);
  ASSERT_FALSE(client);
  EXPECT_EQ(client.error().text,
            "no store at 127.0.0.1 port " + std::to_string(mute.port) + ": no answer from the store");
}

TEST(StoreClient, TriesAgainUntilItsLimitWhileNobodyListens) {
  const Mute nobody(/*listening=*/false);
  const auto start = std::chrono::steady_clock::now();
  const auto client = StoreClient::connect("127.0.0.1", nobody.port, 200ms);
  ASSERT_FALSE(client);
  EXPECT_EQ(client.error().code, Errc::unreachable);
  EXPECT_GT(std::chrono::steady_clock::now() - start, 100ms);
}

TEST(StoreClient, GivesUpEarlyOnAPeerThatHangsUp) {
  const Mute door(/*listening=*/true);
  std::jthread hangs_up([&door](std::stop_token stop) {
    while (!stop.stop_requested()) {
      pollfd one{door.fd(), POLLIN, 0};
      if (::poll(&one, 1, 10) > 0) ::close(::accept(door.fd(), nullptr, nullptr));
    }
  });
  const auto start = std::chrono::steady_clock::now();
  const auto client = StoreClient::connect("127.0.0.1", door.port, 300s, 200ms);
  ASSERT_FALSE(client);
  EXPECT_EQ(client.error().code, Errc::refused) << client.error().text;
  EXPECT_LT(std::chrono::steady_clock::now() - start, 100s);
}

// The limit on answers, not the one on connecting, holds once the store was met.
TEST(StoreClient, DoesNotWaitForAStoppedServerAsLongAsForALateOne) {
  const Mute door(/*listening=*/true);
  std::jthread greets([&door] {
    const int fd = ::accept(door.fd(), nullptr, nullptr);
    char greeting[10];  // VALIDATE and its magic number, PING and a nonce, which is sent back
    EXPECT_EQ(::recv(fd, greeting, sizeof greeting, MSG_WAITALL), ssize_t(sizeof greeting));
    EXPECT_EQ(::send(fd, greeting + 6, 4, 0), 4);
    while (::recv(fd, greeting, sizeof greeting, 0) > 0) continue;
    ::close(fd);
  });
  const auto start = std::chrono::steady_clock::now();
  {
    auto client = StoreClient::connect("127.0.0.1", door.port, 300s, 200ms);
    ASSERT_TRUE(client) << client.error().text;
    EXPECT_FALSE(client->check({"a"}));
  }
  EXPECT_LT(std::chrono::steady_clock::now() - start, 100s);
}

TEST(StoreClient, FindsAStoreThatStartsLater) {
  auto port = std::make_unique<Mute>(/*listening=*/false);
  const std::uint16_t number = port->port;
  auto client =
      std::async(std::launch::async, [number] { return StoreClient::connect("127.0.0.1", number, 10s); });
  port.reset();
  NetThread::Config config;
  config.addresses = {"127.0.0.1"};
  config.port = number;
  config.store = true;
  const auto thread = NetThread::open(std::move(config));
  ASSERT_TRUE(thread) << thread.error().text;
  EXPECT_TRUE(client.get());
}

TEST(StoreClient, TakesNoNames) {
  const auto client = StoreClient::connect("localhost", 1, 1s);
  ASSERT_FALSE(client);
  EXPECT_EQ(client.error().code, Errc::usage);
}

}  // namespace
}  // namespace dlaunch::store
