// What is run: a program out of the words that were typed, and what its texts say about itself. Pure
// but for the Machine's view of files. A program that is missing or cannot be read is no error here:
// it is found when a node starts its workers, so that all nodes hear of it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "dlaunch/environment.hpp"
#include "dlaunch/job.hpp"
#include "dlaunch/settings.hpp"

namespace dlaunch {

// The flags that say how the words are to be taken.
struct RunAs {
  bool module = false;     // -m
  bool no_python = false;  // run the words themselves
  bool run_path = false;   // a Python script in any case
};

struct Command {
  Program program;  // its local_rank_flag is set by the settings
  enum class Text { none, python_file, python_module, shell_file };
  Text text = Text::none;  // of what kind the text is that can be scanned
  std::string text_name;   // the file or module; for wrappers what they seem to run
  bool is_python = false;  // the program, or what an interpreter named as the program runs
  bool is_binary = false;  // an ELF program that is no interpreter and no wrapper
};

// `words` is not empty.
Command make_command(const std::vector<std::string>& words, const RunAs& as, const Environment& environment,
                     const Machine& machine);

// What a text says, with the modules of its own folder that it imports (bounded in files and bytes).
struct Reading {
  bool underscore = false;             // the option string --local_rank
  bool dash = false;                   // --local-rank
  bool assigns_master = false;         // sets MASTER_ADDR or MASTER_PORT
  std::vector<std::string> addresses;  // what stands behind each tcp://, to the end of its line
};
Reading read_texts(const Command& command, const Environment& environment, const Machine& machine);

// Does the program open its group elsewhere than at MASTER_ADDR:MASTER_PORT? True if a text or an
// argument holds a tcp:// that does not name the job's own port, or a text assigns the master.
bool opens_own_group(const Reading& reading, const std::vector<std::string>& arguments,
                     std::uint16_t master_port);

// Pieces, for tests. `reading` gets what one text says.
void read_python(std::string_view text, Reading& reading);
void read_shell(std::string_view text, Reading& reading);
// "a.b", ".c": modules that a text imports, relative ones with their dots; from a import b gives a and a.b.
std::vector<std::string> imported_modules(std::string_view text);

}  // namespace dlaunch
