#include "dlaunch/line_assembler.hpp"

#include <utility>

namespace dlaunch {
namespace {

// Where the last line end of `bytes` ends; 0 if there is none.
std::size_t end_of_lines(std::string_view bytes) {
  std::size_t end = 0;
  if (auto at = bytes.rfind('\n'); at != std::string_view::npos) end = at + 1;
  std::string_view rest = bytes.substr(end);
  if (rest.ends_with('\r')) rest.remove_suffix(1);
  if (auto at = rest.rfind('\r'); at != std::string_view::npos) end += at + 1;
  return end;
}

// How many bytes at the end of `bytes` begin a UTF-8 character that goes on after them.
std::size_t cut_character(std::string_view bytes) {
  for (std::size_t back = 1; back <= 3 && back <= bytes.size(); ++back) {
    auto byte = static_cast<unsigned char>(bytes[bytes.size() - back]);
    if ((byte & 0xc0) == 0x80) continue;
    std::size_t length = byte >= 0xf0 ? 4 : byte >= 0xe0 ? 3 : byte >= 0xc0 ? 2 : 1;
    return length > back ? back : 0;
  }
  return 0;
}

}  // namespace

std::string LineAssembler::feed(std::string_view bytes, Clock::time_point now) {
  if (bytes.empty()) return {};
  last_byte_ = now;
  std::size_t end = end_of_lines(bytes);
  // A carriage return that waited for its line feed is an end after all.
  bool waited = end == 0 && pending_.ends_with('\r') && bytes[0] != '\n';
  if (end == 0 && !waited && pending_.size() + bytes.size() > kMaxLine)
    end = bytes.size() - cut_character(bytes);
  if (end == 0 && !waited) {
    pending_ += bytes;
    return {};
  }
  std::string whole = std::exchange(pending_, {});
  whole += bytes.substr(0, end);
  pending_ = bytes.substr(end);
  return whole;
}

std::optional<Clock::time_point> LineAssembler::due() const {
  if (pending_.empty()) return std::nullopt;
  return last_byte_ + kPatience;
}

std::string LineAssembler::flush() { return std::exchange(pending_, {}); }

}  // namespace dlaunch
