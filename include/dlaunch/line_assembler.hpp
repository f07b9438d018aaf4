// Keeps the lines of one stream whole: bytes in as they were read, pieces out that may be written
// beside those of other streams without tearing a line. Pure: the caller reads, writes and keeps time.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <string_view>

namespace dlaunch {

using Clock = std::chrono::steady_clock;

// Lines up to 64 KiB stay whole. A carriage return is a legal end too; one that is the last byte so
// far waits for the next, since "\r\n" is one end. A piece without an end is due 100 ms after its
// last byte.
class LineAssembler {
 public:
  static constexpr std::size_t kMaxLine = 64 * 1024;
  static constexpr std::chrono::milliseconds kPatience{100};

  // Takes bytes, returns what can be written now (maybe nothing): up to the last line end. Of a line
  // that grew too long all whole characters are given out.
  std::string feed(std::string_view bytes, Clock::time_point now);
  // When the unfinished piece is due, if there is one.
  std::optional<Clock::time_point> due() const;
  // The unfinished piece: to be called when it is due, and at the end of the stream.
  std::string flush();

 private:
  std::string pending_;
  Clock::time_point last_byte_{};
};

}  // namespace dlaunch
