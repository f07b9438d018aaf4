#include "agent/output_router.hpp"

#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <atomic>
#include <random>
#include <sstream>
#include <thread>

#include "ends.hpp"

namespace dlaunch {
namespace {

using namespace std::chrono_literals;
using namespace std::string_literals;
namespace asio = boost::asio;

// One worker's side of the pipes, and what becomes of them.
struct Worker {
  Worker(asio::io_context& io, Console& console, const WorkerLogs& logs, std::vector<std::string>& warnings) {
    auto out_pipe = open_output_pipe();
    auto err_pipe = open_output_pipe();
    out = out_pipe->write;
    err = err_pipe->write;
    output =
        std::make_unique<WorkerOutput>(io.get_executor(), console, logs, out_pipe->read, err_pipe->read,
                                       [&warnings](const std::string& line) { warnings.push_back(line); });
    output->start([this] { ++finishes; });
  }
  ~Worker() { end(); }
  void end() {
    for (int* descriptor : {&out, &err}) {
      if (*descriptor >= 0) ::close(*descriptor);
      *descriptor = -1;
    }
  }

  int out = -1, err = -1, finishes = 0;
  std::unique_ptr<WorkerOutput> output;
};

struct OutputRouterTest : testing::Test {
  OutputRouterTest() {
    console.emplace(
        io.get_executor(), [this](const std::string& line) { warnings.push_back(line); }, screen.write,
        errors.write);
    ::signal(SIGPIPE, SIG_IGN);
  }
  ~OutputRouterTest() override { ::signal(SIGPIPE, SIG_DFL); }

  Worker& start(const WorkerLogs& logs = {}) {
    workers.push_back(std::make_unique<Worker>(io, *console, logs, warnings));
    return *workers.back();
  }
  // What the console shows until all workers' streams are at their end.
  std::string shown_until_finished() {
    std::string shown;
    EXPECT_TRUE(run_until(io, [&] {
      shown += screen.take();
      for (auto& worker : workers) {
        if (!worker->output->finished()) return false;
      }
      return true;
    }));
    bool drained = false;
    console->when_drained([&] { drained = true; });
    EXPECT_TRUE(run_until(io, [&] {
      shown += screen.take();
      return drained;
    }));
    return shown + screen.take();
  }

  asio::io_context io;
  Pipe screen, errors;
  TemporaryFolder folder;
  std::vector<std::string> warnings;
  std::optional<Console> console;
  std::vector<std::unique_ptr<Worker>> workers;
};

TEST_F(OutputRouterTest, BytesReachTheConsoleAsTheyCame) {
  auto& worker = start();
  std::string bytes = "nul\0 \xff\xfe\r\nlast without an end"s;
  put(worker.out, bytes);
  put(worker.err, "words\n");
  worker.end();
  EXPECT_EQ(shown_until_finished(), bytes);
  EXPECT_EQ(errors.take(), "words\n");
  EXPECT_EQ(worker.output->tail().lines(), (std::vector<std::string>{"words"}));
  EXPECT_EQ(worker.finishes, 1);
}

TEST_F(OutputRouterTest, CharactersCutAtTheReadBoundaryComeOutWhole) {
  auto& worker = start();
  std::string text(65535, 'a');
  for (int i = 0; i < 30'000; ++i) text += "\xe2\x82\xac";
  std::thread writer([&] {
    put(worker.out, text);
    worker.end();
  });
  EXPECT_EQ(shown_until_finished(), text);
  writer.join();
}

// Two writers, each line in two or three writes: what Python's print does with its line end.
void write_in_bits(int descriptor, char letter, int lines) {
  std::mt19937 random(static_cast<unsigned>(letter));
  for (int i = 0; i < lines; ++i) {
    std::string line(1 + random() % 200, letter);
    std::size_t cut = random() % line.size();
    put(descriptor, std::string_view(line).substr(0, cut));
    put(descriptor, std::string_view(line).substr(cut));
    put(descriptor, "\n");
  }
}

int torn_lines(const std::string& text) {
  int torn = 0;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);)
    torn += line.empty() || line.find_first_not_of(line[0]) != std::string::npos;
  return torn;
}

TEST_F(OutputRouterTest, LinesOfTwoWorkersNeverTear) {
  auto& a = start();
  auto& b = start();
  std::thread first([&] {
    write_in_bits(a.out, 'a', 20'000);
    a.end();
  });
  std::thread second([&] {
    write_in_bits(b.out, 'b', 20'000);
    b.end();
  });
  std::string shown = shown_until_finished();
  first.join();
  second.join();
  EXPECT_EQ(torn_lines(shown), 0);
  EXPECT_EQ(std::count(shown.begin(), shown.end(), '\n'), 40'000);
}

// The negative control: what the router is there for.
TEST_F(OutputRouterTest, LinesTearWhereTwoWritersShareAPipe) {
  std::string shown;
  for (int attempt = 0; attempt < 50 && torn_lines(shown) == 0; ++attempt) {
    Pipe pipe;
    std::thread first([&] { write_in_bits(pipe.write, 'a', 5000); });
    std::thread second([&] { write_in_bits(pipe.write, 'b', 5000); });
    std::thread closer([&] {
      first.join();
      second.join();
      pipe.close_write();
    });
    char bytes[65536];
    for (ssize_t n; (n = ::read(pipe.read, bytes, sizeof bytes)) > 0;)
      shown.append(bytes, static_cast<std::size_t>(n));
    closer.join();
  }
  EXPECT_GT(torn_lines(shown), 0);
}

TEST_F(OutputRouterTest, ProgressWithCarriageReturnsIsShownAsItComes) {
  auto& worker = start();
  std::string shown;
  for (const char* state : {"\r 10%", "\r 20%", "\r 30%"}) {
    put(worker.out, state);
    std::string end = std::string(state).substr(1);
    EXPECT_TRUE(run_until(io, [&] {
      shown += screen.take();
      return shown.ends_with(end);
    })) << shown;
  }
}

TEST_F(OutputRouterTest, APieceWithoutAnEndIsShownAfterAWhile) {
  auto& worker = start();
  auto before = Clock::now();
  put(worker.out, "loading … ");
  std::string shown;
  EXPECT_TRUE(run_until(io, [&] {
    shown += screen.take();
    return !shown.empty();
  }));
  EXPECT_EQ(shown, "loading … ");
  EXPECT_GE(Clock::now() - before, 100ms);
  put(worker.out, "done\n");
  EXPECT_TRUE(run_until(io, [&] {
    shown += screen.take();
    return shown == "loading … done\n";
  }));
}

TEST_F(OutputRouterTest, ARedirectedStreamGoesToItsFileAndItsLastWordsAreKnown) {
  WorkerLogs logs;
  logs.err_file = folder.path + "/attempt_0/1/stderr.log";
  logs.console_err = false;
  auto& worker = start(logs);
  put(worker.err, "to the file\nwithout end");
  put(worker.out, "to the console\n");
  worker.end();
  EXPECT_EQ(shown_until_finished(), "to the console\n");
  EXPECT_EQ(errors.take(), "");
  EXPECT_EQ(folder.read("attempt_0/1/stderr.log"), "to the file\nwithout end");
  EXPECT_EQ(worker.output->tail().lines().back(), "without end");
}

TEST_F(OutputRouterTest, TeedLinesAreLabelledOnTheConsoleOnly) {
  WorkerLogs logs;
  logs.out_file = folder.path + "/stdout.log";
  logs.label_out = "[default3]:";
  auto& worker = start(logs);
  put(worker.out, "one\ntwo\n");
  worker.end();
  EXPECT_EQ(shown_until_finished(), "[default3]:one\n[default3]:two\n");
  EXPECT_EQ(folder.read("stdout.log"), "one\ntwo\n");
}

TEST_F(OutputRouterTest, LabelledPiecesOfTwoWorkersDoNotGlue) {
  WorkerLogs logs;
  logs.label_out = "[a]:";
  auto& a = start(logs);
  logs.label_out = "[b]:";
  auto& b = start(logs);
  std::string shown;
  auto wait_for = [&](std::string_view end) {
    EXPECT_TRUE(run_until(io, [&] {
      shown += screen.take();
      return shown.ends_with(end);
    })) << shown;
  };
  put(a.out, "loading");
  wait_for("loading");
  put(b.out, "ready\n");
  wait_for("ready\n");
  put(a.out, " done\n");
  wait_for("done\n");
  EXPECT_EQ(shown, "[a]:loading\n[b]:ready\n[a]: done\n");
}

TEST_F(OutputRouterTest, LogFileTakesBothStreamsInWholeLinesAndIsTruncatedOrAppendedTo) {
  WorkerLogs logs;
  logs.out_file = logs.err_file = folder.path + "/process0.log";
  logs.console_out = logs.console_err = false;
  for (bool append : {false, true, false}) {
    logs.append = append;
    auto& worker = start(logs);
    put(worker.out, "half ");
    put(worker.err, "an error\n");
    std::string path = "process0.log";
    EXPECT_TRUE(run_until(io, [&] { return folder.read(path).ends_with("an error\n"); }));
    put(worker.out, "a line\n");
    worker.end();
    EXPECT_EQ(shown_until_finished(), "");
    std::string once = folder.read(path);
    EXPECT_EQ(std::count(once.begin(), once.end(), '\n'), append ? 4 : 2);
    EXPECT_NE(once.find("a line\n"), std::string::npos);
  }
}

TEST_F(OutputRouterTest, AFullDiskIsOneWarningAndTheOutputGoesOnOnTheConsole) {
  if (::access("/dev/full", W_OK) != 0) GTEST_SKIP() << "no /dev/full";
  for (bool both : {false, true}) {
    warnings.clear();
    WorkerLogs logs;
    logs.out_file = "/dev/full";
    if (both) logs.err_file = logs.out_file;
    logs.console_out = logs.console_err = false;
    auto& worker = start(logs);
    put(worker.out, "one\n");
    io.run_for(5ms);
    put(worker.out, "two\n");
    worker.end();
    EXPECT_EQ(shown_until_finished(), "one\ntwo\n");
    EXPECT_EQ(
        warnings,
        (std::vector<std::string>{
            "log file '/dev/full': No space left on device; this output is shown on the console only"}));
    workers.clear();
  }
}

TEST_F(OutputRouterTest, AFileThatCannotBeOpenedIsOneWarningAndNoLoss) {
  WorkerLogs logs;
  logs.out_file = "/proc/no/such/stdout.log";
  logs.console_out = false;
  auto& worker = start(logs);
  put(worker.out, "here\n");
  worker.end();
  EXPECT_EQ(shown_until_finished(), "here\n");
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_NE(warnings[0].find("/proc/no/such/stdout.log"), std::string::npos);
}

TEST_F(OutputRouterTest, AFilteredStreamIsReadAndForgottenButForItsLastWords) {
  WorkerLogs logs;
  logs.console_out = logs.console_err = false;
  auto& worker = start(logs);
  std::thread writer([&] {
    put(worker.out, std::string(2 << 20, 'x'));
    put(worker.err, "why\n");
    worker.end();
  });
  EXPECT_EQ(shown_until_finished(), "");
  writer.join();
  EXPECT_EQ(worker.output->tail().lines().back(), "why");
}

TEST_F(OutputRouterTest, AStreamThatAnotherProcessHoldsOpenIsGivenUpOnceItIsEmpty) {
  auto& worker = start();
  int held = ::dup(worker.out);
  put(worker.out, "before\n");
  worker.end();
  auto before = Clock::now();
  worker.output->close_when_idle();
  io.run_for(50ms);
  put(held, "still said\n");
  EXPECT_EQ(shown_until_finished(), "before\nstill said\n");
  EXPECT_GE(Clock::now() - before, WorkerOutput::kLinger);
  EXPECT_LT(Clock::now() - before, WorkerOutput::kLinger + 5s);
  EXPECT_FALSE(put(held, "too late\n"));
  ::close(held);
}

TEST_F(OutputRouterTest, NothingIsGivenUpThatTheConsoleHadNoRoomFor) {
  auto& worker = start();
  int held = ::dup(worker.out);
  std::size_t expected = 0;
  for (; !console->full(); expected += 65536) console->write(Stream::out, std::string(65536, 'x'));
  std::string last(40'000, 'y');
  put(worker.out, last);
  worker.end();
  worker.output->close_when_idle();
  auto deadline = Clock::now() + WorkerOutput::kLinger + 200ms;
  EXPECT_TRUE(run_until(io, [&] { return Clock::now() > deadline; }));
  EXPECT_FALSE(worker.output->finished());
  std::string shown = shown_until_finished();
  EXPECT_EQ(shown.size(), expected + last.size());
  EXPECT_TRUE(shown.ends_with(last));
  ::close(held);
}

TEST_F(OutputRouterTest, AFullConsoleStopsTheWorkerAndNothingIsLost) {
  auto& worker = start();
  std::string all;
  for (int i = 0; all.size() < (16u << 20); ++i) all += "line " + std::to_string(i) + "\n";
  std::atomic<bool> wrote{false};
  std::thread writer([&] {
    put(worker.out, all);
    wrote = true;
    worker.end();
  });
  EXPECT_TRUE(run_until(io, [&] { return console->full(); }));
  io.restart();
  io.run_for(50ms);
  EXPECT_FALSE(wrote);
  EXPECT_TRUE(shown_until_finished() == all);
  writer.join();
}

TEST_F(OutputRouterTest, ABrokenConsoleBreaksTheWorkersStreamToo) {
  auto& worker = start();
  screen.close_read();
  EXPECT_TRUE(run_until(io, [&] { return !put(worker.out, "anyone?\n"); }));
  EXPECT_TRUE(put(worker.err, "still here\n"));
  auto& later = start();
  EXPECT_TRUE(run_until(io, [&] { return !put(later.out, "anyone?\n"); }));
}

TEST_F(OutputRouterTest, ABrokenConsoleDoesNotStopWhatAlsoGoesToAFile) {
  WorkerLogs logs;
  logs.out_file = folder.path + "/stdout.log";
  auto& worker = start(logs);
  screen.close_read();
  put(worker.out, "one\n");
  EXPECT_TRUE(run_until(io, [&] { return console->broken(Stream::out); }));
  EXPECT_TRUE(put(worker.out, "two\n"));
  worker.end();
  EXPECT_TRUE(run_until(io, [&] { return worker.output->finished(); }));
  EXPECT_EQ(folder.read("stdout.log"), "one\ntwo\n");
}

TEST_F(OutputRouterTest, MayBeDestroyedBecauseItFinished) {
  auto out = open_output_pipe(), err = open_output_pipe();
  std::unique_ptr<WorkerOutput> output;
  output = std::make_unique<WorkerOutput>(io.get_executor(), *console, WorkerLogs{}, out->read, err->read,
                                          [](const std::string&) {});
  output->start([&] { output.reset(); });
  put(out->write, "half a line");
  ::close(out->write);
  output->close_when_idle();
  io.run_for(10ms);
  output->close();
  EXPECT_TRUE(run_until(io, [&] { return !output; }));
  EXPECT_FALSE(put(err->write, "x"));
  ::close(err->write);
}

TEST_F(OutputRouterTest, TheWorkersPipeEndsAreOrdinary) {
  auto pipe = open_output_pipe();
  EXPECT_EQ(::fcntl(pipe->write, F_GETFL) & O_NONBLOCK, 0);
  EXPECT_TRUE(::fcntl(pipe->write, F_GETFD) & FD_CLOEXEC);
  EXPECT_TRUE(::fcntl(pipe->read, F_GETFD) & FD_CLOEXEC);
  ::close(pipe->read);
  ::close(pipe->write);
}

}  // namespace
}  // namespace dlaunch
