#include "dlaunch/tail.hpp"

#include <gtest/gtest.h>

#include <algorithm>

namespace dlaunch {
namespace {

const Clock::time_point kStart{};

Clock::time_point at(int milliseconds) { return kStart + std::chrono::milliseconds(milliseconds); }

bool is_evidence(std::string_view text) {
  Tail tail;
  tail.feed("starting\n", kStart);
  tail.feed(text, at(5000));
  return tail.evidence() == at(5000);
}

constexpr const char* kTraceback =
    "Traceback (most recent call last):\n"
    "  File \"train.py\", line 3, in <module>\n"
    "    main()\n"
    "RuntimeError: shapes do not match\n";

TEST(Tail, RemembersTheLast20Lines) {
  Tail tail;
  for (int i = 0; i < 50; ++i) tail.feed("line " + std::to_string(i) + "\n", kStart);
  auto lines = tail.lines();
  ASSERT_EQ(lines.size(), 20u);
  EXPECT_EQ(lines.front(), "line 30");
  EXPECT_EQ(lines.back(), "line 49");
  tail.feed("unfinished", kStart);
  lines = tail.lines();
  ASSERT_EQ(lines.size(), 20u);
  EXPECT_EQ(lines.front(), "line 31");
  EXPECT_EQ(lines.back(), "unfinished");
}

TEST(Tail, RemembersTheSameOfManyLinesHoweverManyComeAtOnce) {
  std::string text;
  for (int i = 0; i < 100; ++i)
    text += std::string(static_cast<std::size_t>(i % 7), 'x') + std::to_string(i) + "\n";
  for (std::size_t length : {text.size(), text.size() - 1, text.size() - 40}) {
    for (std::size_t step = 1; step <= text.size(); ++step) {
      Tail tail, slow;
      for (std::size_t i = 0; i < length; i += step)
        tail.feed(std::string_view(text).substr(i, std::min(step, length - i)), kStart);
      for (std::size_t i = 0; i < length; ++i) slow.feed(std::string_view(text).substr(i, 1), kStart);
      ASSERT_EQ(tail.lines(), slow.lines()) << step;
    }
  }
}

TEST(Tail, CutsLongLines) {
  Tail tail;
  tail.feed(std::string(5000, 'a'), kStart);
  tail.feed(std::string(5000, 'b') + "\nnext\n", kStart);
  EXPECT_EQ(tail.lines(), (std::vector<std::string>{std::string(1024, 'a'), "next"}));
}

TEST(Tail, KeepsTheLastStateOfAProgressBar) {
  Tail tail;
  tail.feed("\r 10%", kStart);
  tail.feed("\r 20%\r", kStart);
  EXPECT_EQ(tail.lines(), (std::vector<std::string>{" 20%"}));
  tail.feed(" 30%", kStart);
  EXPECT_EQ(tail.lines(), (std::vector<std::string>{" 30%"}));
  tail.feed("\r\ndone\r\n", kStart);
  EXPECT_EQ(tail.lines(), (std::vector<std::string>{" 30%", "done"}));
}

TEST(Tail, BytesAreKeptAsTheyCame) {
  Tail tail;
  tail.feed(std::string_view("nul\0 \xff\n", 7), kStart);
  EXPECT_EQ(tail.lines()[0], std::string("nul\0 \xff", 6));
}

TEST(Tail, ATracebackIsEvidenceFromItsHeadOn) {
  Tail tail;
  tail.feed("Traceback (most recent call last):\n", at(100));
  EXPECT_EQ(tail.evidence(), at(100));
  tail.feed("  File \"a.py\", line 1\n\n    x()\n", at(200));
  EXPECT_EQ(tail.evidence(), at(100));
  tail.feed("torch.cuda.OutOfMemoryError: no ", at(300));
  EXPECT_EQ(tail.evidence(), at(100));
  tail.feed("memory\n", at(300));
  EXPECT_EQ(tail.evidence(), at(100));
}

TEST(Tail, AnythingPrintedAfterTheBlockTakesTheEvidenceBack) {
  Tail tail;
  tail.feed(kTraceback, kStart);
  ASSERT_TRUE(tail.evidence());
  tail.feed("trying again", at(1));
  EXPECT_FALSE(tail.evidence());
  tail.feed("\n", at(1));
  EXPECT_FALSE(tail.evidence());
}

TEST(Tail, EvidenceOutlivesTheRememberedLines) {
  Tail tail;
  tail.feed("Traceback (most recent call last):\n", at(7));
  for (int i = 0; i < 200; ++i) tail.feed("  File \"a.py\", line 1\n", at(8));
  tail.feed("RecursionError: maximum recursion depth exceeded\n", at(9));
  EXPECT_EQ(tail.evidence(), at(7));
}

TEST(Tail, ChainedExceptionsAreOneBlock) {
  for (const char* link : {"During handling of the above exception, another exception occurred:",
                           "The above exception was the direct cause of the following exception:"}) {
    Tail tail;
    tail.feed(kTraceback, at(0));
    std::string chain = std::string("\n") + link + "\n\n";
    for (std::size_t i = 0; i < chain.size(); ++i) {
      tail.feed(chain.substr(i, 1), at(1));
      ASSERT_TRUE(tail.evidence()) << i;
    }
    tail.feed(kTraceback, at(2));
    EXPECT_EQ(tail.evidence(), at(0));
  }
}

TEST(Tail, ALaterBlockIsANewOne) {
  Tail tail;
  tail.feed(kTraceback, at(0));
  tail.feed(kTraceback, at(60'000));
  EXPECT_EQ(tail.evidence(), at(60'000));
}

TEST(Tail, EvidenceComesInManyForms) {
  EXPECT_TRUE(is_evidence(kTraceback));
  EXPECT_TRUE(is_evidence("Traceback (most recent call last):\r\n  File\r\nKeyboardInterrupt\r\n"));
  EXPECT_TRUE(is_evidence(
      "[rank12]: Traceback (most recent call last):\n[rank12]:   File \"a.py\"\n[rank12]: ValueError: x\n"));
  EXPECT_TRUE(is_evidence(
      " 10%|#    | 1/10 [00:01<00:09]Traceback (most recent call last):\n  File\nValueError: x\n"));
  EXPECT_TRUE(
      is_evidence("  + Exception Group Traceback (most recent call last):\n  |   File \"a.py\"\n  | "
                  "ExceptionGroup: x\n"));
  EXPECT_TRUE(is_evidence(
      "Traceback (most recent call last):\n  File\nRuntimeError: CUDA error: invalid device ordinal\n"
      "CUDA kernel errors might be asynchronously reported at some other API call\n"
      "For debugging consider passing CUDA_LAUNCH_BLOCKING=1.\n"
      "Compile with `TORCH_USE_CUDA_DSA` to enable device-side assertions.\n\n"));
  EXPECT_TRUE(
      is_evidence("terminate called after throwing an instance of 'std::runtime_error'\n  what():  no\n"));
  EXPECT_TRUE(is_evidence("terminate called without an active exception\n"));
  EXPECT_TRUE(is_evidence(
      "Fatal Python error: Segmentation fault\n\nCurrent thread 0x00007f (most recent call first):\n"
      "  File \"a.py\", line 4 in f\n\nThread 0x00007e (most recent call first):\n  <no Python frame>\n\n"
      "Extension modules: numpy.core._multiarray_umath (total: 1)\n"));
  EXPECT_TRUE(is_evidence(
      "*** Aborted at 1700000000 (unix time) try \"date -d @1700000000\" ***\nPC: @     0x0 (unknown)\n"
      "*** SIGSEGV (@0x0) received by PID 7 ***\n    @     0x7f f()\n"));
  EXPECT_TRUE(is_evidence("Segmentation fault (core dumped)\n"));
  EXPECT_TRUE(is_evidence("Aborted"));
  EXPECT_TRUE(is_evidence("a.out: a.cpp:3: int main(): Assertion `x == 1' failed.\n"));
  EXPECT_TRUE(is_evidence("free(): invalid pointer\nAborted\n"));
  EXPECT_TRUE(is_evidence("==77==ERROR: AddressSanitizer: heap-use-after-free\n"));
}

TEST(Tail, OrdinaryOutputIsNone) {
  for (const char* text :
       {"step 1\n", "", "\n\n", "ValueError: shown, not raised\n", "Aborted 3 of 7 transfers\n",
        "see the Traceback (most recent call last): above\n", "  File \"a.py\"\n", "[rank0]: hello\n"}) {
    Tail tail;
    tail.feed(text, kStart);
    EXPECT_FALSE(tail.evidence()) << text;
  }
}

TEST(Tail, TheResultDoesNotDependOnHowTheBytesWereCut) {
  std::string text =
      "start\n\r 5%\r10%\n" + std::string(kTraceback) + "\n" + std::string(1500, 'z') + "\nend";
  Tail whole;
  whole.feed(text, kStart);
  for (std::size_t step = 1; step < 64; ++step) {
    Tail tail;
    for (std::size_t i = 0; i < text.size(); i += step) tail.feed(text.substr(i, step), kStart);
    EXPECT_EQ(tail.lines(), whole.lines()) << step;
    EXPECT_EQ(tail.evidence(), whole.evidence());
  }
}

}  // namespace
}  // namespace dlaunch
