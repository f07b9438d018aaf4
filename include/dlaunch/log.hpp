// What dlaunch itself says: to stderr, one event a line, "dlaunch: " first, and nothing at all
// while things go well. Library code returns errors and says nothing; programs call this where an
// event is handled. With the level debug each event also goes through spdlog, with UTC time and
// key=value facts.
//
// Lines must not tear worker output, so they go through a sink that the agent points at its console
// queue; until then (and in the guard) they are written straight to descriptor 2.
#pragma once

#include <functional>
#include <string>
#include <string_view>

namespace dlaunch::log {

enum class Level { debug, info, warning, error };

// Unknown names give false and change nothing. Names are those of Python's logging, any case.
bool set_level(std::string_view name);
Level level();

// Where whole lines (with their end) go; an empty function restores descriptor 2.
void set_sink(std::function<void(std::string line)> sink);

// One sentence to the person, always shown: "dlaunch: waiting for node 1 …".
void say(std::string_view sentence);

// "dlaunch: warning: …", shown unless the level is error.
void warn(std::string_view sentence);

// "dlaunch: error: …", and an indented hint on a second line unless empty.
void error(std::string_view sentence, std::string_view hint = {});

// Shown with --log_level debug only; key=value facts.
void debug(std::string_view facts);

}  // namespace dlaunch::log
