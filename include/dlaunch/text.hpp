// Text from elsewhere (workers, other nodes), made so that a terminal only shows it.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace dlaunch {

// One line: control characters and bytes that are not UTF-8 become \xNN, a line end at the end is dropped,
// what is over `limit` bytes is cut. Applying it twice changes nothing more.
std::string visible(std::string_view text, std::size_t limit = 1024);

// The same for each of several lines; every line keeps its end.
std::string visible_lines(std::string_view text);

}  // namespace dlaunch
