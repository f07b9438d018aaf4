#include "dlaunch/resolver.hpp"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>

namespace dlaunch {
namespace {

using namespace std::chrono_literals;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;

std::chrono::steady_clock::time_point in(std::chrono::milliseconds limit) {
  return std::chrono::steady_clock::now() + limit;
}

// A variable that has its old value again afterwards.
class Variable {
 public:
  Variable(const char* name, const std::string& value) : name_(name) {
    if (const char* old = std::getenv(name)) old_ = old;
    ::setenv(name, value.c_str(), 1);
  }
  ~Variable() { old_ ? ::setenv(name_, old_->c_str(), 1) : ::unsetenv(name_); }

 private:
  const char* name_;
  std::optional<std::string> old_;
};

// A name server on a port of its own, in a thread: knows one name and, if told so, says nothing
// about IPv6.
class NameServer {
 public:
  enum class Habit { answers, silent, silent_on_v6 };

  explicit NameServer(Habit habit) : habit_(habit) {
    socket_ = ::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    ::bind(socket_, reinterpret_cast<sockaddr*>(&address), size);
    ::getsockname(socket_, reinterpret_cast<sockaddr*>(&address), &size);
    at_ = "127.0.0.1:" + std::to_string(ntohs(address.sin_port));
    thread_ = std::thread([this] { serve(); });
  }
  ~NameServer() {
    done_ = true;
    thread_.join();
    ::close(socket_);
  }
  const std::string& at() const { return at_; }

 private:
  void serve() {
    while (!done_) {
      pollfd readable{socket_, POLLIN, 0};
      if (::poll(&readable, 1, 20) <= 0) continue;
      char bytes[512];
      sockaddr_in peer{};
      socklen_t size = sizeof peer;
      ssize_t got = ::recvfrom(socket_, bytes, sizeof bytes, 0, reinterpret_cast<sockaddr*>(&peer), &size);
      if (got < 17 || habit_ == Habit::silent) continue;
      std::string reply = answer_to(std::string(bytes, static_cast<std::size_t>(got)));
      if (!reply.empty()) {
        ::sendto(socket_, reply.data(), reply.size(), 0, reinterpret_cast<sockaddr*>(&peer), size);
      }
    }
  }

  std::string answer_to(const std::string& query) const {
    std::size_t name_end = query.find('\0', 12);
    std::string question = query.substr(12, name_end + 5 - 12);  // name, type, class
    bool is_v6 = question[question.size() - 3] == 28;
    if (is_v6 && habit_ == Habit::silent_on_v6) return "";
    bool known = question.starts_with(std::string("\x05known\x04test\x00", 12));
    std::string v6 = "\xfd" + std::string(14, '\0') + "\x07";
    std::string address = is_v6 ? v6 : "\x0a\x09\x08\x07";
    std::string reply = query.substr(0, 2);
    reply += std::string("\x81", 1) + (known ? '\x80' : '\x83');  // NXDOMAIN if unknown
    reply += std::string("\0\1\0", 3) + (known ? '\1' : '\0') + std::string(4, '\0') + question;
    if (known) {
      reply += std::string("\xc0\x0c\0", 3) + (is_v6 ? '\x1c' : '\x01') + std::string("\0\1\0\0\0\x3c\0", 7);
      reply += static_cast<char>(address.size());
      reply += address;
    }
    return reply;
  }

  Habit habit_;
  int socket_ = -1;
  std::string at_;
  std::atomic<bool> done_ = false;
  std::thread thread_;
};

class ResolverTest : public testing::Test {
 protected:
  ResolverTest() {
    hosts("127.0.0.1 localhost\n");
    options_.hosts_from_variable = true;
    options_.name_servers = quiet_.at();
  }
  ~ResolverTest() override { std::filesystem::remove_all(folder_); }

  void hosts(const std::string& text) { std::ofstream(folder_ / "hosts") << text; }

  // A `getent` of our own, first in PATH.
  void getent(const std::string& script) {
    std::ofstream(folder_ / "getent") << "#!/bin/sh\n" << script << "\n";
    ::chmod((folder_ / "getent").c_str(), 0755);
  }

  Result<Addresses> look_up(const std::string& name, std::chrono::milliseconds limit = 5s) {
    return resolve(name, in(limit), options_);
  }

  Addresses found(const std::string& name) {
    auto answer = look_up(name);
    if (!answer) ADD_FAILURE() << answer.error().text;
    return answer ? *answer : Addresses{};
  }

  std::string error_of(const std::string& name) {
    auto answer = look_up(name);
    return answer ? "no error" : answer.error().text;
  }

  static std::filesystem::path new_folder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "resolver-XXXXXX").string();
    return ::mkdtemp(pattern.data());
  }

  std::filesystem::path folder_ = new_folder();
  NameServer quiet_{NameServer::Habit::answers};
  ResolveOptions options_;
  Variable hosts_variable_{"CARES_HOSTS", (folder_ / "hosts").string()};
  Variable path_{"PATH", folder_.string()};  // no getent unless a test makes one
};

TEST_F(ResolverTest, LiteralsAreTakenAsTheyAreGiven) {
  EXPECT_EQ(address_literal("10.77.0.1"), "10.77.0.1");
  EXPECT_EQ(address_literal("::1"), "::1");
  EXPECT_EQ(address_literal("[fd00::7]"), "fd00::7");
  EXPECT_EQ(address_literal("fe80::1%eth0"), "fe80::1%eth0");
  for (const char* no :
       {"", "gpu-a", "10.77.0", "[10.77.0.1]", "10.77.0.1.", "[]", "[::1", "fe80::1%", "1"}) {
    EXPECT_EQ(address_literal(no), "") << no;
  }
  EXPECT_THAT(found("[::1]"), ElementsAre("::1"));
}

TEST_F(ResolverTest, WhatCannotBeANameIsRefusedAtOnce) {
  getent("echo 10.0.0.1");
  for (std::string name : {"", "-help", "two words", "a\nb", "\x1b[2J"}) {
    EXPECT_THAT(error_of(name), HasSubstr("is not a host name")) << name;
  }
  EXPECT_THAT(error_of(std::string(254, 'a')), HasSubstr("is not a host name"));
}

TEST_F(ResolverTest, TheHostsFileAnswersBeforeAnyServerAndPutsIPv4First) {
  NameServer silent(NameServer::Habit::silent);
  options_.name_servers = silent.at();
  hosts("fd00::5 gpu-a\n10.0.0.5 gpu-a.cluster gpu-a\n10.0.0.6 only-v4\n");
  auto started = std::chrono::steady_clock::now();
  EXPECT_THAT(found("gpu-a"), ElementsAre("10.0.0.5", "fd00::5"));
  EXPECT_THAT(found("only-v4"), ElementsAre("10.0.0.6"));
  EXPECT_LT(std::chrono::steady_clock::now() - started, 500ms);
}

TEST_F(ResolverTest, LocalhostNeedsNoFile) {
  hosts("");
  EXPECT_THAT(found("localhost"), ElementsAre("127.0.0.1", "::1"));
}

TEST_F(ResolverTest, ANameServerIsAskedForBothFamilies) {
  EXPECT_THAT(found("known.test"), ElementsAre("10.9.8.7", "fd00::7"));
}

TEST_F(ResolverTest, AServerThatIsSilentAboutIPv6CostsAMoment) {
  NameServer half(NameServer::Habit::silent_on_v6);
  options_.name_servers = half.at();
  auto started = std::chrono::steady_clock::now();
  EXPECT_THAT(found("known.test"), ElementsAre("10.9.8.7"));
  EXPECT_LT(std::chrono::steady_clock::now() - started, 1500ms);
}

TEST_F(ResolverTest, AnUnknownNameIsAnErrorThatNamesIt) {
  EXPECT_EQ(error_of("nowhere.test"),
            "no address found for 'nowhere.test': neither the hosts file nor the name service knows it");
  EXPECT_EQ(look_up("nowhere.test").error().code, Errc::not_found);
}

TEST_F(ResolverTest, ASilentNameServerIsBounded) {
  NameServer silent(NameServer::Habit::silent);
  options_.name_servers = silent.at();
  auto started = std::chrono::steady_clock::now();
  auto answer = look_up("known.test", 800ms);
  EXPECT_LT(std::chrono::steady_clock::now() - started, 1500ms);
  ASSERT_FALSE(answer);
  EXPECT_EQ(answer.error().code, Errc::timed_out);
  EXPECT_THAT(answer.error().text, HasSubstr("no name server answers"));
}

TEST_F(ResolverTest, ANameThatAppearsLaterIsFoundByALaterAttempt) {
  EXPECT_FALSE(look_up("late-node"));
  hosts("10.0.0.9 late-node\n");
  EXPECT_THAT(found("late-node"), ElementsAre("10.0.0.9"));
}

TEST_F(ResolverTest, WhatNobodyElseKnowsIsAskedOfGetent) {
  getent(
      "[ \"$1 $2\" = 'ahosts directory-name' ] || exit 2\n"
      "printf 'fd00::8 STREAM\\nfd00::8 DGRAM\\n10.0.0.8   STREAM directory-name\\n10.0.0.8 DGRAM\\n'");
  EXPECT_THAT(found("directory-name"), ElementsAre("10.0.0.8", "fd00::8"));
  EXPECT_THAT(error_of("nowhere.test"), HasSubstr("neither the hosts file nor the name service"));
}

TEST_F(ResolverTest, GetentIsNotAskedWhenTheHostsFileKnows) {
  getent(": > " + (folder_ / "asked").string());
  hosts("10.0.0.5 gpu-a\n");
  EXPECT_TRUE(look_up("gpu-a"));
  EXPECT_FALSE(std::filesystem::exists(folder_ / "asked"));
}

TEST_F(ResolverTest, GetentsNonsenseIsNoAnswer) {
  getent("echo 'not an address'; echo; exec /bin/cat /dev/zero");
  EXPECT_THAT(error_of("nowhere.test"), HasSubstr("neither the hosts file"));
}

TEST_F(ResolverTest, AHungGetentIsEndedWithItsChildren) {
  auto file = (folder_ / "pid").string();
  getent("/bin/sleep 1000 & echo $! > " + file + "; wait");
  auto started = std::chrono::steady_clock::now();
  EXPECT_FALSE(look_up("nowhere.test", 1s));
  EXPECT_LT(std::chrono::steady_clock::now() - started, 2s);
  pid_t child = 0;
  std::ifstream(file) >> child;
  ASSERT_GT(child, 0);
  // The orphan is somebody else's to reap: it is gone, or it is a zombie.
  auto deadline = in(5s);
  auto is_dead = [&] {
    std::string stat;
    std::getline(std::ifstream("/proc/" + std::to_string(child) + "/stat"), stat);
    return stat.empty() || stat[stat.rfind(')') + 2] == 'Z';
  };
  while (!is_dead() && std::chrono::steady_clock::now() < deadline) std::this_thread::sleep_for(5ms);
  EXPECT_TRUE(is_dead());
}

TEST_F(ResolverTest, GetentGetsNoDescriptorOfOurs) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);  // not close-on-exec: a descriptor that somebody forgot
  getent("[ -e /proc/self/fd/" + std::to_string(ends[1]) + " ] || echo 10.0.0.8");
  EXPECT_THAT(found("clean"), ElementsAre("10.0.0.8"));
  ::close(ends[0]);
  ::close(ends[1]);
}

TEST_F(ResolverTest, GetentStartsWithDefaultSignals) {
  sigset_t all, before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  getent(
      "while read name value; do [ \"$name\" = SigBlk: ] && [ \"$value\" = 0000000000000000 ] && "
      "echo 10.0.0.8; done < /proc/self/status");
  auto answer = look_up("clean");
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  EXPECT_TRUE(answer);
}

TEST_F(ResolverTest, TheAnswerComesToTheAskersLoop) {
  hosts("10.0.0.5 gpu-a\n");
  boost::asio::io_context home;
  Resolver resolver(home.get_executor(), options_);
  std::thread::id where;
  std::optional<Addresses> found;
  auto keep = boost::asio::make_work_guard(home);
  resolver.ask("gpu-a", 5s, [&](Result<Addresses> answer) {
    where = std::this_thread::get_id();
    if (answer) found = *answer;
    keep.reset();
  });
  home.run_for(10s);
  EXPECT_EQ(where, std::this_thread::get_id());
  ASSERT_TRUE(found);
  EXPECT_THAT(*found, ElementsAre("10.0.0.5"));
}

TEST_F(ResolverTest, ALiteralNeedsNoThread) {
  boost::asio::io_context home;
  Resolver resolver(home.get_executor(), options_);
  int answers = 0;
  resolver.ask("::1", 5s, [&](Result<Addresses> answer) { answers += answer && answer->front() == "::1"; });
  EXPECT_EQ(answers, 0) << "never before ask() returns";
  home.run();
  EXPECT_EQ(answers, 1);
}

TEST_F(ResolverTest, AnErrorIsAnAnswerToo) {
  boost::asio::io_context home;
  auto keep = boost::asio::make_work_guard(home);
  Resolver resolver(home.get_executor(), options_);
  std::string text;
  resolver.ask("nowhere.test", 5s, [&](Result<Addresses> answer) {
    text = answer ? "found" : answer.error().text;
    keep.reset();
  });
  home.run_for(10s);
  EXPECT_THAT(text, HasSubstr("'nowhere.test'"));
}

TEST_F(ResolverTest, ACancelledQuestionIsNeverAnswered) {
  hosts("10.0.0.5 gpu-a\n");
  boost::asio::io_context home;
  Resolver resolver(home.get_executor(), options_);
  int answers = 0;
  resolver.ask("::1", 5s, [&](Result<Addresses>) { answers += 100; });
  resolver.cancel();  // its answer is in home's queue by now
  resolver.ask("gpu-a", 5s, [&](Result<Addresses>) { answers += 100; });
  resolver.ask("10.0.0.1", 5s, [&](Result<Addresses>) { answers += 1; });  // takes its place
  home.run_for(300ms);
  EXPECT_EQ(answers, 1);
}

TEST_F(ResolverTest, ItsEndDoesNotWaitForASilentServerOrAHungGetent) {
  NameServer silent(NameServer::Habit::silent);
  for (bool hung_getent : {false, true}) {
    if (hung_getent) getent(": > " + (folder_ / "asked").string() + "; exec /bin/sleep 1000");
    options_.name_servers = hung_getent ? quiet_.at() : silent.at();
    boost::asio::io_context home;
    int answers = 0;
    std::optional<Resolver> resolver(std::in_place, home.get_executor(), options_);
    resolver->ask("known.test.elsewhere", 30s, [&](Result<Addresses>) { ++answers; });
    auto deadline = in(5s);
    while (hung_getent && !std::filesystem::exists(folder_ / "asked") && in(0s) < deadline) {
      std::this_thread::sleep_for(5ms);
    }
    auto started = std::chrono::steady_clock::now();
    resolver.reset();
    EXPECT_LT(std::chrono::steady_clock::now() - started, 1s);
    home.run_for(10ms);
    EXPECT_EQ(answers, 0);
  }
}

TEST_F(ResolverTest, TheMachineKnowsItsOwnAddressesAndName) {
  EXPECT_THAT(local_addresses(), Contains("127.0.0.1"));
  EXPECT_FALSE(host_name().empty());
}

}  // namespace
}  // namespace dlaunch
