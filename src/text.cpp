#include "dlaunch/text.hpp"

#include <algorithm>
#include <cstdio>

namespace dlaunch {

using std::string_view;

namespace {

// Room for the bar in front of a line that was cut already.
constexpr std::size_t kMaxReportLine = 2048;

// How many bytes at the front of `text` are one printable UTF-8 character; 0 for a byte that is not.
std::size_t printable(string_view text) {
  auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  unsigned char first = byte(0);
  if (first < 0x80) return (first >= 0x20 && first != 0x7f) || first == '\t' ? 1 : 0;
  std::size_t length = first >= 0xf0 && first < 0xf5 ? 4 : first >= 0xe0 ? 3 : first >= 0xc2 ? 2 : 0;
  if (length == 0 || first >= 0xf5 || text.size() < length) return 0;
  for (std::size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return 0;
  }
  bool second_control_set = first == 0xc2 && byte(1) < 0xa0;
  bool overlong = (first == 0xe0 && byte(1) < 0xa0) || (first == 0xf0 && byte(1) < 0x90);
  bool out_of_range = (first == 0xed && byte(1) >= 0xa0) || (first == 0xf4 && byte(1) >= 0x90);
  return second_control_set || overlong || out_of_range ? 0 : length;
}

}  // namespace

std::string visible(string_view text, std::size_t limit) {
  while (text.ends_with('\n') || text.ends_with('\r')) text.remove_suffix(1);
  std::string safe;
  while (!text.empty() && safe.size() < limit) {
    if (std::size_t length = printable(text)) {
      safe += text.substr(0, length);
      text.remove_prefix(length);
    } else {
      char hex[5];
      std::snprintf(hex, sizeof hex, "\\x%02x", static_cast<unsigned char>(text[0]));
      safe += hex;
      text.remove_prefix(1);
    }
  }
  if (!text.empty()) safe += " …";
  return safe;
}

std::string visible_lines(string_view text) {
  std::string safe;
  while (!text.empty()) {
    auto end = std::min(text.find('\n'), text.size());
    safe += visible(text.substr(0, end), kMaxReportLine) + "\n";
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return safe;
}

}  // namespace dlaunch
