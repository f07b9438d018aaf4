#include "dlaunch/line_label.hpp"

#include <gtest/gtest.h>

namespace dlaunch {
namespace {

TEST(LineLabel, StandsInFrontOfEachLine) {
  LineLabel label("[default0]:");
  EXPECT_EQ(label.apply("one\n\ntwo\r\n"), "[default0]:one\n[default0]:\n[default0]:two\r\n");
  EXPECT_EQ(label.apply(""), "");
}

TEST(LineLabel, IsNotRepeatedWithinALineThatCameInPieces) {
  LineLabel label("[a]:");
  EXPECT_EQ(label.apply("loading "), "[a]:loading ");
  EXPECT_EQ(label.apply("done\nnext"), "done\n[a]:next");
}

TEST(LineLabel, IsDrawnAgainWithAProgressBar) {
  LineLabel label("[a]:");
  EXPECT_EQ(label.apply("\r10%"), "\r[a]:10%");
  EXPECT_EQ(label.apply("\r20%\r30%\r"), "\r[a]:20%\r[a]:30%\r");
  EXPECT_EQ(label.apply("\ndone\n"), "[a]:\n[a]:done\n");
}

TEST(LineLabel, BeginsAnewAfterSomethingElseWasShown) {
  LineLabel label("[a]:");
  label.apply("half");
  label.begin_line();
  EXPECT_EQ(label.apply(" a line\n"), "[a]: a line\n");
}

}  // namespace
}  // namespace dlaunch
