#include "trainer/report/plot.hpp"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <optional>
#include <utility>

namespace trainer {
namespace {

constexpr double kWidth = 900, kHeight = 600;
constexpr double kLeft = 80, kRight = 24;  // margins of both panels
constexpr std::size_t kMostPoints = 1600;  // two to a pixel: more are not seen
constexpr auto kSmallest = 1e-12;          // a spread below this share of the values is rounding

struct Point {
  double x = 0;
  double y = 0;
};
using Points = std::vector<Point>;

struct Panel {
  const char* title;
  const char* color;
  double top;
  double bottom;
  Points points;  // rising x; those that are not finite break the line
};

std::string number(double value) {  // for coordinates
  char text[32];
  std::snprintf(text, sizeof text, "%.2f", value);
  return text;
}

std::string label(double value) {
  const char* unit = "";
  if (std::abs(value) >= 1e6) {
    value /= 1e6;
    unit = " M";
  } else if (std::abs(value) >= 1e4) {
    value /= 1e3;
    unit = " k";
  }
  char text[40];
  std::snprintf(text, sizeof text, "%.6g%s", value, unit);
  return text;
}

std::string escaped(const std::string& text) {
  std::string safe;
  for (char c : text) {
    switch (c) {
      case '&':
        safe += "&amp;";
        break;
      case '<':
        safe += "&lt;";
        break;
      case '>':
        safe += "&gt;";
        break;
      case '"':
        safe += "&quot;";
        break;
      default:
        safe += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;  // XML has no control characters
    }
  }
  return safe;
}

// An axis that begins and ends on ticks, which are 1, 2 or 5 times a power of ten apart.
struct Axis {
  double low = 0;
  double high = 1;
  double tick = 1;

  double share(double value) const { return (value - low) / (high - low); }
};

Axis axis_for(double low, double high, int ticks, bool whole_numbers) {
  if (high - low <= kSmallest * std::max(std::abs(low), std::abs(high))) {
    double room = std::max(std::abs(high) * 0.1, whole_numbers ? 1.0 : 1e-6);
    low -= low < room && low >= 0 ? low : room;
    high += room;
  }
  double rough = (high - low) / ticks;
  double power = std::pow(10, std::floor(std::log10(rough)));
  double tick = 10 * power;
  for (double times : {1.0, 2.0, 5.0}) {
    if (times * power >= rough * 0.999) {
      tick = times * power;
      break;
    }
  }
  if (whole_numbers) tick = std::max(tick, 1.0);
  return {std::floor(low / tick + 1e-9) * tick, std::ceil(high / tick - 1e-9) * tick, tick};
}

bool is_drawn(const Point& point) { return std::isfinite(point.y); }

// Of each stretch the lowest and the highest point, so that no spike is lost, and one that breaks the line.
Points thinned(const Points& points) {
  if (points.size() <= kMostPoints) return points;
  Points kept{points.front()};
  std::size_t stretches = kMostPoints / 2;
  for (std::size_t i = 0; i < stretches; ++i) {
    auto begin = points.begin() + static_cast<std::ptrdiff_t>(i * points.size() / stretches);
    auto end = points.begin() + static_cast<std::ptrdiff_t>((i + 1) * points.size() / stretches);
    auto gap = std::find_if_not(begin, end, is_drawn);
    if (gap != end) {
      kept.push_back(*gap);
      continue;
    }
    auto [low, high] =
        std::minmax_element(begin, end, [](const Point& one, const Point& other) { return one.y < other.y; });
    kept.push_back(*std::min(low, high));
    if (low != high) kept.push_back(*std::max(low, high));
  }
  kept.push_back(points.back());
  return kept;
}

std::string text_at(double x, double y, const char* anchor, const std::string& text, const char* more = "") {
  return "<text x=\"" + number(x) + "\" y=\"" + number(y) + "\" text-anchor=\"" + anchor + "\"" + more + ">" +
         text + "</text>\n";
}

std::string line_between(double x1, double y1, double x2, double y2, const char* kind) {
  return "<line class=\"" + std::string(kind) + "\" x1=\"" + number(x1) + "\" y1=\"" + number(y1) +
         "\" x2=\"" + number(x2) + "\" y2=\"" + number(y2) + "\"/>\n";
}

std::string draw(const Panel& panel, const Axis& across) {
  double right = kWidth - kRight;
  std::string svg = text_at(kLeft, panel.top - 10, "start", panel.title, " class=\"name\"");
  double low = HUGE_VAL, high = -HUGE_VAL;
  for (const auto& point : panel.points) {
    if (!is_drawn(point)) continue;
    low = std::min(low, point.y);
    high = std::max(high, point.y);
  }
  if (low > high)
    return svg + text_at((kLeft + right) / 2, (panel.top + panel.bottom) / 2, "middle", "no figures");

  // Throughput and loss read best against 0, unless that would press a flat curve to the edge.
  if (low > 0 && low < 0.7 * high) low = 0;
  auto up = axis_for(low, high, 5, false);
  auto place = [&](const Point& point) {
    return Point{kLeft + across.share(point.x) * (right - kLeft),
                 panel.bottom - up.share(point.y) * (panel.bottom - panel.top)};
  };
  for (double y = up.low; y < up.high + up.tick / 2; y += up.tick) {
    double value = std::abs(y) < up.tick / 2 ? 0 : y;
    double row = place({across.low, value}).y;
    svg += line_between(kLeft, row, right, row, "grid") + text_at(kLeft - 8, row + 4, "end", label(value));
  }
  for (double x = across.low; x < across.high + across.tick / 2; x += across.tick) {
    double column = place({x, up.low}).x;
    svg += line_between(column, panel.bottom, column, panel.bottom + 5, "axis") +
           text_at(column, panel.bottom + 20, "middle", label(x));
  }
  svg += line_between(kLeft, panel.bottom, right, panel.bottom, "axis");

  auto stretch = [&](const Points& points) {
    if (points.empty()) return std::string();
    if (points.size() == 1) {
      return "<circle cx=\"" + number(points[0].x) + "\" cy=\"" + number(points[0].y) + "\" r=\"3\" fill=\"" +
             panel.color + "\"/>\n";
    }
    std::string line = "<polyline stroke=\"" + std::string(panel.color) + "\" points=\"";
    for (const auto& point : points) line += number(point.x) + "," + number(point.y) + " ";
    line.back() = '"';
    return line + "/>\n";
  };
  Points run;
  for (const auto& point : thinned(panel.points)) {
    if (is_drawn(point)) {
      run.push_back(place(point));
    } else {
      svg += stretch(std::exchange(run, {}));
    }
  }
  return svg + stretch(run);
}

}  // namespace

std::string plot_svg(const std::vector<MetricsLine>& lines, const std::string& title) {
  Panel loss{"loss", "#c2410c", 76, 288, {}};
  Panel speed{"images/s", "#1d4ed8", 346, 552, {}};
  Axis across;
  for (const auto& line : lines) {
    auto step = static_cast<double>(line.step);
    loss.points.push_back({step, line.loss});
    speed.points.push_back({step, line.images_per_second});
  }
  if (!lines.empty()) {
    auto first = static_cast<double>(lines.front().step), last = static_cast<double>(lines.back().step);
    across = axis_for(first < last / 2 ? 0 : first, last, 8, true);
  }
  return "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"900\" height=\"600\" viewBox=\"0 0 900 600\" "
         "font-family=\"sans-serif\" font-size=\"13\" fill=\"#333\">\n"
         "<style>.grid{stroke:#ddd}.axis{stroke:#666}.name{font-weight:bold}"
         "polyline{fill:none;stroke-width:1.6;stroke-linejoin:round}</style>\n"
         "<rect width=\"900\" height=\"600\" fill=\"#fff\"/>\n" +
         text_at(kWidth / 2, 30, "middle", escaped(title), " font-size=\"17\"") + draw(loss, across) +
         draw(speed, across) + text_at((kLeft + kWidth - kRight) / 2, kHeight - 10, "middle", "step") +
         "</svg>\n";
}

dlaunch::Result<> write_plot(const std::string& path, const std::vector<MetricsLine>& lines,
                             const std::string& title) {
  errno = 0;
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  if (!file) return dlaunch::last_error("open " + path);
  file << plot_svg(lines, title);
  file.close();
  if (!file) return dlaunch::last_error("write " + path);
  return {};
}

}  // namespace trainer
