#include "dlaunch/line_assembler.hpp"

#include <gtest/gtest.h>

namespace dlaunch {
namespace {

const Clock::time_point kStart{};

TEST(LineAssembler, GivesOutUpToTheLastLineEnd) {
  LineAssembler lines;
  EXPECT_EQ(lines.feed("one\ntwo\nthr", kStart), "one\ntwo\n");
  EXPECT_EQ(lines.feed("ee", kStart), "");
  EXPECT_EQ(lines.feed("\nfour", kStart), "three\n");
  EXPECT_EQ(lines.flush(), "four");
  EXPECT_EQ(lines.flush(), "");
}

TEST(LineAssembler, AnUnfinishedPieceIsDue100MsAfterItsLastByte) {
  LineAssembler lines;
  EXPECT_FALSE(lines.due());
  lines.feed("par", kStart);
  EXPECT_EQ(lines.due(), kStart + std::chrono::milliseconds(100));
  lines.feed("tial", kStart + std::chrono::milliseconds(60));
  EXPECT_EQ(lines.due(), kStart + std::chrono::milliseconds(160));
  lines.feed("\n", kStart + std::chrono::milliseconds(70));
  EXPECT_FALSE(lines.due());
}

TEST(LineAssembler, ACarriageReturnIsALegalEnd) {
  LineAssembler lines;
  EXPECT_EQ(lines.feed("10%\r20%\r30%", kStart), "10%\r20%\r");
  EXPECT_EQ(lines.feed("\r40%", kStart), "30%\r");
  EXPECT_EQ(lines.flush(), "40%");
}

TEST(LineAssembler, ACarriageReturnAndItsLineFeedAreNotTornApart) {
  LineAssembler lines;
  EXPECT_EQ(lines.feed("a line\r", kStart), "");
  EXPECT_EQ(lines.feed("\nnext", kStart), "a line\r\n");
  EXPECT_EQ(lines.flush(), "next");
  EXPECT_EQ(lines.feed("90%\r", kStart), "");
  EXPECT_EQ(lines.feed("100%", kStart), "90%\r");
  EXPECT_EQ(lines.feed("\r", kStart), "");
  EXPECT_EQ(lines.feed("\n", kStart), "100%\r\n");
}

TEST(LineAssembler, LinesUpTo64KiBStayWholeAndLongerOnesAreGivenOut) {
  LineAssembler lines;
  std::string longest(LineAssembler::kMaxLine, 'x');
  EXPECT_EQ(lines.feed(longest, kStart), "");
  EXPECT_EQ(lines.feed("\n", kStart), longest + "\n");
  EXPECT_EQ(lines.feed(longest, kStart), "");
  EXPECT_EQ(lines.feed("y", kStart), longest + "y");
  EXPECT_EQ(lines.flush(), "");
}

TEST(LineAssembler, ALineThatIsTooLongIsNotCutInsideACharacter) {
  LineAssembler lines;
  std::string text(LineAssembler::kMaxLine, 'x');
  EXPECT_EQ(lines.feed(text + "\xe2\x82", kStart), text);
  EXPECT_EQ(lines.feed("\xac\n", kStart), "\xe2\x82\xac\n");
}

TEST(LineAssembler, EveryByteComesOutOnceAndInOrderHoweverItWasCut) {
  std::string text;
  for (int i = 0; i < 300; ++i)
    text += std::string(static_cast<std::size_t>(i % 37), 'a' + i % 26) +
            (i % 3   ? "\n"
             : i % 2 ? "\r\n"
                     : "\r") +
            std::string(1, '\0');
  for (std::size_t step = 1; step < 40; ++step) {
    LineAssembler lines;
    std::string out;
    for (std::size_t at = 0; at < text.size(); at += step) {
      std::string piece = lines.feed(std::string_view(text).substr(at, step), kStart);
      EXPECT_TRUE(piece.empty() || piece.back() == '\n' || piece.back() == '\r');
      out += piece;
    }
    EXPECT_EQ(out + lines.flush(), text) << step;
  }
}

}  // namespace
}  // namespace dlaunch
