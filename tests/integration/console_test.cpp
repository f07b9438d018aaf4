#include "agent/console.hpp"

#include <gtest/gtest.h>
#include <pthread.h>
#include <signal.h>

#include <thread>

#include "ends.hpp"

namespace dlaunch {
namespace {

using namespace std::chrono_literals;
namespace asio = boost::asio;

struct ConsoleTest : testing::Test, Console::User {
  void on_room() override { ++rooms; }
  void on_broken(Stream stream) override { (stream == Stream::out ? out_broke : err_broke) = true; }

  Console& open(int to_out, int to_err) {
    console = std::make_unique<Console>(
        io.get_executor(), [this](const std::string& line) { warnings.push_back(line); }, to_out, to_err);
    console->add(*this);
    return *console;
  }

  asio::io_context io;
  Pipe out, err;
  std::unique_ptr<Console> console;
  std::vector<std::string> warnings;
  int rooms = 0;
  bool out_broke = false, err_broke = false;
};

TEST_F(ConsoleTest, PiecesComeOutInTheOrderOfBothStreams) {
  Pipe screen;
  auto& console = open(screen.write, screen.write);
  std::string expected;
  for (int i = 0; i < 1000; ++i) {
    std::string line = std::to_string(i) + "\n";
    console.write(i % 3 ? Stream::out : Stream::err, line);
    expected += line;
  }
  EXPECT_TRUE(console.drain(std::nullopt));
  EXPECT_EQ(screen.take(), expected);
}

TEST_F(ConsoleTest, ABlockedConsoleBlocksNeitherTheMainThreadNorTheOtherStream) {
  auto& console = open(out.write, err.write);
  auto before = std::chrono::steady_clock::now();
  while (!console.full()) console.write(Stream::out, std::string(65536, 'x'));
  console.write(Stream::err, "the report\n");
  EXPECT_FALSE(console.drain(20ms));
  EXPECT_EQ(err.take(), "the report\n");
  EXPECT_LT(std::chrono::steady_clock::now() - before, 5s);
  console.write(Stream::err, "and more\n");
  EXPECT_TRUE(console.drain(5s));
  EXPECT_EQ(err.take(), "and more\n");
}

TEST_F(ConsoleTest, TheEndOfABlockedConsoleIsQuick) {
  auto& console = open(out.write, err.write);
  while (!console.full()) console.write(Stream::out, std::string(65536, 'x'));
  auto before = std::chrono::steady_clock::now();
  this->console.reset();
  EXPECT_LT(std::chrono::steady_clock::now() - before, 900ms);
}

TEST_F(ConsoleTest, WithoutALimitDrainWaitsForASlowReader) {
  auto& console = open(out.write, err.write);
  std::string all(3 << 20, 'x');
  console.write(Stream::out, all);
  std::size_t got = 0;
  std::thread reader([&] {
    char bytes[65536];
    while (got < all.size()) got += static_cast<std::size_t>(::read(out.read, bytes, sizeof bytes));
  });
  EXPECT_TRUE(console.drain(std::nullopt));
  reader.join();
  EXPECT_EQ(got, all.size());
}

TEST_F(ConsoleTest, TheDescriptorsFlagsAreLeftAlone) {
  for (bool nonblocking : {false, true}) {
    Pipe pipe;
    if (nonblocking) ::fcntl(pipe.write, F_SETFL, O_NONBLOCK);
    int before = ::fcntl(pipe.write, F_GETFL);
    auto& console = open(pipe.write, pipe.write);
    std::string all(1 << 20, 'x');
    console.write(Stream::out, all);
    std::string got;
    EXPECT_TRUE(run_until(io, [&] {
      got += pipe.take();
      EXPECT_EQ(::fcntl(pipe.write, F_GETFL), before);
      return got.size() == all.size();
    })) << got.size();
    this->console.reset();
    EXPECT_EQ(::fcntl(pipe.write, F_GETFL), before);
  }
}

TEST_F(ConsoleTest, ABlockedNonBlockingConsoleIsGivenUpToo) {
  ::fcntl(out.write, F_SETFL, O_NONBLOCK);
  auto& console = open(out.write, err.write);
  console.write(Stream::out, std::string(1 << 20, 'x'));
  console.write(Stream::err, "seen\n");
  EXPECT_FALSE(console.drain(20ms));
  EXPECT_EQ(err.take(), "seen\n");
}

TEST_F(ConsoleTest, AStreamWithoutAReaderIsBrokenAndTheOtherGoesOn) {
  auto& console = open(out.write, err.write);
  out.close_read();
  console.write(Stream::out, "lost\n");
  EXPECT_TRUE(run_until(io, [&] { return out_broke; }));
  EXPECT_TRUE(console.broken(Stream::out));
  EXPECT_FALSE(console.broken(Stream::err));
  while (!console.full()) console.write(Stream::err, std::string(1 << 20, 'x'));
  for (int i = 0; i < 100; ++i) console.write(Stream::out, std::string(1 << 20, 'x'));
  std::size_t got = 0;
  EXPECT_TRUE(run_until(io, [&] {
    got += err.take().size();
    return rooms > 0;
  }));
  sigset_t pending;
  ::sigpending(&pending);
  EXPECT_FALSE(::sigismember(&pending, SIGPIPE));
}

TEST_F(ConsoleTest, RoomIsTold) {
  auto& console = open(out.write, err.write);
  while (!console.full()) console.write(Stream::out, std::string(65536, 'x'));
  io.run_for(10ms);
  EXPECT_EQ(rooms, 0);
  EXPECT_TRUE(run_until(io, [&] {
    out.take();
    return rooms == 1;
  }));
  EXPECT_FALSE(console.full());
}

TEST_F(ConsoleTest, AFullDiskLosesOutputWithOneWarningAndNothingBreaks) {
  int full = ::open("/dev/full", O_WRONLY | O_CLOEXEC);
  if (full < 0) GTEST_SKIP() << "no /dev/full";
  auto& console = open(full, err.write);
  for (int i = 0; i < 10; ++i) console.write(Stream::out, "lost\n");
  EXPECT_TRUE(console.drain(5s));
  EXPECT_TRUE(run_until(io, [&] { return !warnings.empty(); }));
  EXPECT_EQ(warnings,
            (std::vector<std::string>{
                "stdout: No space left on device; what the workers say there is lost until there is room"}));
  EXPECT_FALSE(out_broke);
  this->console.reset();
  ::close(full);
}

TEST_F(ConsoleTest, AClosedDescriptorIsABrokenStream) {
  open(1 << 20, err.write).write(Stream::out, "x\n");
  EXPECT_TRUE(run_until(io, [&] { return out_broke; }));
}

TEST_F(ConsoleTest, DlaunchsOwnLinesBeginOnAFreshLine) {
  Pipe screen;
  auto& console = open(screen.write, screen.write);
  console.say("dlaunch: one\n");
  console.write(Stream::out, " 10%|#");
  console.say("dlaunch: two\n");
  console.say("dlaunch: three\n");
  console.drain(std::nullopt);
  EXPECT_EQ(screen.take(), "dlaunch: one\n 10%|#\ndlaunch: two\ndlaunch: three\n");
}

TEST_F(ConsoleTest, StreamsThatGoToDifferentPlacesHaveLinesOfTheirOwn) {
  auto& console = open(out.write, err.write);
  int source = 0;
  console.write(Stream::out, "half", &source);
  EXPECT_EQ(console.open_line(Stream::out), &source);
  EXPECT_EQ(console.open_line(Stream::err), nullptr);
  console.say("dlaunch: x\n");
  console.write(Stream::out, " a line\n", &source);
  EXPECT_EQ(console.open_line(Stream::out), nullptr);
  console.drain(std::nullopt);
  EXPECT_EQ(err.take(), "dlaunch: x\n");
}

TEST_F(ConsoleTest, TellsWhenItIsDrained) {
  auto& console = open(out.write, err.write);
  bool drained = false;
  console.write(Stream::out, std::string(1 << 20, 'x'));
  console.when_drained([&] { drained = true; });
  io.run_for(10ms);
  EXPECT_FALSE(drained);
  std::size_t got = 0;
  EXPECT_TRUE(run_until(io, [&] {
    got += out.take().size();
    return drained;
  }));
  EXPECT_EQ(got + out.take().size(), 1u << 20);
}

}  // namespace
}  // namespace dlaunch
