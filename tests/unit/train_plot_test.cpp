#include <gmock/gmock.h>

#include <cmath>
#include <cstdlib>
#include <limits>

#include "trainer/report/plot.hpp"

namespace trainer {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

std::vector<MetricsLine> lines_of(int count) {
  std::vector<MetricsLine> lines;
  for (int i = 1; i <= count; ++i) {
    lines.push_back({.step = i * 10, .loss = 2.0 / i, .images_per_second = 20000.0 + i % 7});
  }
  return lines;
}

std::size_t count_of(const std::string& text, const std::string& part) {
  std::size_t count = 0;
  for (auto at = text.find(part); at != text.npos; at = text.find(part, at + 1)) ++count;
  return count;
}

struct Place {
  double x, y;
};

std::vector<Place> places(const std::string& svg, std::size_t polyline) {
  std::size_t at = 0;
  for (std::size_t i = 0; i <= polyline; ++i) at = svg.find("points=\"", at) + 8;
  std::vector<Place> found;
  const char* text = svg.c_str() + at;
  for (char* end = nullptr; *text != '"'; text = end + (*end == ' ')) {
    double x = std::strtod(text, &end);
    double y = std::strtod(end + 1, &end);
    found.push_back({x, y});
  }
  return found;
}

TEST(Plot, DrawsLossAndThroughputWithinTheirPanels) {
  auto svg = plot_svg(lines_of(30), "mlp");
  ASSERT_EQ(count_of(svg, "<polyline"), 2u);
  EXPECT_THAT(svg,
              AllOf(HasSubstr(">mlp<"), HasSubstr(">loss<"), HasSubstr(">images/s<"), HasSubstr(">step<")));
  auto loss = places(svg, 0), speed = places(svg, 1);
  ASSERT_EQ(loss.size(), 30u);
  ASSERT_EQ(speed.size(), 30u);
  for (std::size_t i = 1; i < loss.size(); ++i) {
    EXPECT_GT(loss[i].x, loss[i - 1].x);
    EXPECT_GE(loss[i].y, loss[i - 1].y);  // it falls: downwards is more in an SVG
  }
  for (const auto& place : loss)
    EXPECT_TRUE(80 <= place.x && place.x <= 876 && 76 <= place.y && place.y <= 288);
  for (const auto& place : speed)
    EXPECT_TRUE(80 <= place.x && place.x <= 876 && 346 <= place.y && place.y <= 552);
}

TEST(Plot, TicksAreRoundNumbers) {
  auto svg = plot_svg(lines_of(30), "mlp");
  for (auto tick : {">0<", ">0.5<", ">1<", ">1.5<", ">2<", ">50<", ">300<", ">20 k<"})
    EXPECT_THAT(svg, HasSubstr(tick));
}

TEST(Plot, TheTitleIsEscaped) {
  auto svg = plot_svg(lines_of(3), "a<b> & \"c\"\x01");
  EXPECT_THAT(svg, HasSubstr("a&lt;b&gt; &amp; &quot;c&quot; <"));
  EXPECT_THAT(svg, Not(HasSubstr("\x01")));
}

TEST(Plot, ThousandsOfPointsAreThinnedAndNoSpikeIsLost) {
  auto lines = lines_of(50000);
  lines[33333].loss = 9.9;
  lines[33334].images_per_second = 1;
  auto svg = plot_svg(lines, "long");
  EXPECT_LT(svg.size(), 100'000u);
  auto loss = places(svg, 0), speed = places(svg, 1);
  EXPECT_LT(loss.size(), 2000u);
  EXPECT_TRUE(std::any_of(loss.begin() + 500, loss.end(), [](Place place) { return place.y < 80; }));
  EXPECT_TRUE(std::any_of(speed.begin(), speed.end(), [](Place place) { return place.y > 550; }));
  for (std::size_t i = 1; i < loss.size(); ++i) ASSERT_GE(loss[i].x, loss[i - 1].x);
}

TEST(Plot, ALossThatIsNotFiniteBreaksTheLine) {
  auto lines = lines_of(20);
  lines[9].loss = std::numeric_limits<double>::quiet_NaN();
  lines[10].loss = std::numeric_limits<double>::infinity();
  auto svg = plot_svg(lines, "nan");
  EXPECT_EQ(count_of(svg, "<polyline"), 3u);
  EXPECT_THAT(svg, AllOf(Not(HasSubstr("nan,")), Not(HasSubstr("inf"))));
}

TEST(Plot, WithoutFiguresItSaysSo) {
  EXPECT_EQ(count_of(plot_svg({}, "nothing"), "no figures"), 2u);
  auto svg = plot_svg(lines_of(1), "one");
  EXPECT_EQ(count_of(svg, "<circle"), 2u);
  EXPECT_THAT(svg, AllOf(Not(HasSubstr("nan\"")), Not(HasSubstr("inf"))));
}

TEST(Plot, ExtremeFiguresEndInTime) {
  auto lines = lines_of(4);
  lines[0].loss = 1e300, lines[1].loss = -1e300, lines[2].loss = 1e-300, lines[3].loss = 0;
  for (auto& line : lines) line.images_per_second = 1e15;
  lines[2].images_per_second = std::nextafter(1e15, 2e15);
  auto svg = plot_svg(lines, "extreme");
  EXPECT_LT(svg.size(), 20'000u);
  EXPECT_THAT(svg, AllOf(Not(HasSubstr("nan")), Not(HasSubstr("inf"))));
}

TEST(Plot, AFileThatCannotBeWrittenIsNamed) {
  auto written = write_plot("/no/such/folder/x.svg", lines_of(2), "x");
  ASSERT_FALSE(written);
  EXPECT_EQ(written.error().text, "open /no/such/folder/x.svg: No such file or directory");
  EXPECT_FALSE(write_plot("/dev/full", lines_of(2), "x"));
}

}  // namespace
}  // namespace trainer
