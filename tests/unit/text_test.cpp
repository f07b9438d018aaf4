#include "dlaunch/text.hpp"

#include <gtest/gtest.h>

namespace dlaunch {
namespace {

TEST(Text, ControlCharactersAndBrokenBytesAreShownAndNotObeyed) {
  EXPECT_EQ(visible("\x1b[2J\rx\n"), "\\x1b[2J\\x0dx");
  EXPECT_EQ(visible("caf\xe9"), "caf\\xe9");
  EXPECT_EQ(visible("caf\xc3\xa9\ttab"), "caf\xc3\xa9\ttab");
}

TEST(Text, TwiceIsAsOnce) {
  for (std::string text : {std::string("\x1b\xff"), std::string(5000, 'x'), std::string()}) {
    EXPECT_EQ(visible(visible(text)), visible(text));
  }
}

TEST(Text, OfSeveralLinesEachKeepsItsEnd) { EXPECT_EQ(visible_lines("a\n\x07\nb"), "a\n\\x07\nb\n"); }

}  // namespace
}  // namespace dlaunch
