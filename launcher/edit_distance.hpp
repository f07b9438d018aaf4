// How many letters have to be put in, taken out or changed to make one word of another: for "did you
// mean". No knowledge of flags.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace dlaunch {

int edit_distance(std::string_view a, std::string_view b);

// The candidate nearest to `word`, the first of equals; empty if none is within a third of its length
// (at least 1).
std::string nearest(std::string_view word, const std::vector<std::string>& candidates);

}  // namespace dlaunch
