#include <gmock/gmock.h>

#include <cmath>

#include "trainer/report/progress_bar.hpp"

namespace trainer {
namespace {

using testing::HasSubstr;
using testing::Not;

TEST(ProgressLine, TellsHowFarHowGoodHowFastAndHowLong) {
  EXPECT_EQ(
      progress_line(150, 600, 0.43214, 12345.4, 80.2, 100),
      "[##########..............................]  150/600  loss 0.4321  12345 images/s  1 min 21 s left");
}

TEST(ProgressLine, NeverReachesTheLastColumn) {
  for (int columns = 0; columns < 200; ++columns) {
    auto line = progress_line(1234567, 9999999, 1e30, 1e9, 1e7, columns);
    EXPECT_LE(int(line.size()), std::max(columns - 1, 0));
  }
}

TEST(ProgressLine, LeavesOutTheLeastImportantFirst) {
  EXPECT_EQ(progress_line(1, 600, 0.5, 100, 5, 22), "1/600  loss 0.5000");
  EXPECT_EQ(progress_line(1, 600, 0.5, 100, 5, 36), "1/600  loss 0.5000  100 images/s");
}

TEST(ProgressLine, SpellsTheTimeLeft) {
  auto left = [](double seconds) { return progress_line(1, 2, 0, 1, seconds, 120); };
  EXPECT_THAT(left(59), HasSubstr("  59 s left"));
  EXPECT_THAT(left(61), HasSubstr("  1 min 01 s left"));
  EXPECT_THAT(left(3600 * 26 + 61), HasSubstr("  26 h 01 min left"));
  EXPECT_THAT(left(-1), Not(HasSubstr("left")));
  EXPECT_THAT(left(NAN), Not(HasSubstr("left")));
  EXPECT_THAT(left(1e300), Not(HasSubstr("left")));
}

TEST(ProgressLine, TheBarStaysABarBeforeTheStartAndBeyondTheEnd) {
  EXPECT_THAT(progress_line(0, 0, 0, 0, -1, 60), HasSubstr("[...."));
  EXPECT_THAT(progress_line(9, 3, 0, 0, -1, 60), HasSubstr("###]"));
}

}  // namespace
}  // namespace trainer
