// From argv to what was typed: finds the program, understands both spellings, prefixes of torch's
// flags, short flags and --flag=value, and refuses unknown flags with the nearest name. Pure. The
// program and all that follows are left as they are, whatever they look like.
//
// CLI11 alone cannot do this (an unknown flag or a prefix would become the program), so it gets the
// launcher's part in its canonical form: it holds the flags that exclude each other, and makes the
// help.
#pragma once

#include <string>
#include <vector>

#include "dlaunch/result.hpp"
#include "dlaunch/settings.hpp"

namespace dlaunch {

// argv[0] included. Does not look at values, only at their presence.
Result<Typed> scan(const std::vector<std::string>& argv);

// Flags that cannot be typed together.
Result<void> check_exclusions(const Typed& typed);

// Grouped by purpose, two screens, at most 100 columns; each flag with its default and its variable.
std::string help_text();

}  // namespace dlaunch
