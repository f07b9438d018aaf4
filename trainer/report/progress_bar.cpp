#include "trainer/report/progress_bar.hpp"

#include <poll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <vector>

namespace trainer {
namespace {

constexpr std::chrono::milliseconds kBetween{100};
constexpr int kUsualColumns = 80;
constexpr int kShortestBar = 10;
constexpr int kLongestBar = 40;
constexpr std::string_view kWipe = "\r\033[K";

std::string with(const char* format, double value) {
  char text[64];
  std::snprintf(text, sizeof text, format, value);
  return text;
}

std::string time_text(double seconds) {
  if (!std::isfinite(seconds) || seconds < 0 || seconds > 1e8) return "";
  auto whole = static_cast<long>(std::ceil(seconds));
  char text[64];
  if (whole < 60) {
    std::snprintf(text, sizeof text, "%ld s left", whole);
  } else if (whole < 3600) {
    std::snprintf(text, sizeof text, "%ld min %02ld s left", whole / 60, whole % 60);
  } else {
    std::snprintf(text, sizeof text, "%ld h %02ld min left", whole / 3600, whole / 60 % 60);
  }
  return text;
}

bool can_draw(int fd) {
  if (fd < 0 || ::isatty(fd) != 1) return false;
  const char* terminal = std::getenv("TERM");
  return !terminal || std::string_view(terminal) != "dumb";
}

int columns_of(int fd) {
  winsize size{};
  return ::ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : kUsualColumns;
}

}  // namespace

std::string progress_line(std::int64_t step, std::int64_t steps, double loss, double images_per_second,
                          double seconds_left, int columns) {
  // The last column stays free: a terminal would begin a new line there.
  auto room = static_cast<std::size_t>(std::max(columns - 1, 0));
  std::string line = std::to_string(step) + "/" + std::to_string(steps);
  std::vector<std::string> parts{"loss " + with("%.4f", loss)};
  if (images_per_second > 0) parts.push_back(with("%.0f images/s", images_per_second));
  if (auto left = time_text(seconds_left); !left.empty()) parts.push_back(left);
  // In order of importance, as far as there is room.
  for (const auto& part : parts) {
    if (line.size() + 2 + part.size() > room) break;
    line += "  " + part;
  }
  if (line.size() > room) return line.substr(0, room);
  auto bar = static_cast<int>(room - line.size()) - 4;
  if (bar < kShortestBar) return line;
  bar = std::min(bar, kLongestBar);
  double done = steps > 0 ? std::clamp(double(step) / double(steps), 0.0, 1.0) : 0;
  auto full = static_cast<std::size_t>(done * bar);
  return "[" + std::string(full, '#') + std::string(static_cast<std::size_t>(bar) - full, '.') + "]  " + line;
}

ProgressBar::ProgressBar(int fd) : fd_(can_draw(fd) ? fd : -1) {}

ProgressBar::~ProgressBar() { wipe(); }

void ProgressBar::draw(std::int64_t step, std::int64_t steps, double loss, double images_per_second) {
  if (fd_ < 0) return;
  auto now = Clock::now();
  if (first_ < 0) {
    first_ = step;
    start_ = now;
  }
  if (shown_ && now - drawn_ < kBetween) return;
  // Whoever has stopped the terminal's output must not stop the training with it.
  pollfd writable{fd_, POLLOUT, 0};
  if (::poll(&writable, 1, 0) != 1 || !(writable.revents & POLLOUT)) return;
  double elapsed = std::chrono::duration<double>(now - start_).count();
  // A resumed run did not do the steps before the first.
  double left = step > first_ ? elapsed / double(step - first_) * double(steps - step) : -1;
  auto text = std::string(kWipe) + progress_line(step, steps, loss, images_per_second, left, columns_of(fd_));
  if (::write(fd_, text.data(), text.size()) < 0) return;
  shown_ = true;
  drawn_ = now;
}

void ProgressBar::wipe() {
  if (!shown_) return;
  shown_ = ::write(fd_, kWipe.data(), kWipe.size()) < 0;
}

}  // namespace trainer
