#include "dlaunch/command.hpp"

#include <algorithm>
#include <array>
#include <sstream>

namespace dlaunch {

namespace {

std::string basename_of(const std::string& path) { return path.substr(path.rfind('/') + 1); }

bool ends_with_any(const std::string& name, std::initializer_list<std::string_view> endings) {
  return std::any_of(endings.begin(), endings.end(),
                     [&](auto ending) { return name.size() > ending.size() && name.ends_with(ending); });
}

// python, python3, python3.11, pypy3
bool is_python_interpreter(const std::string& word) {
  std::string name = basename_of(word);
  for (std::string_view stem : {"python", "pypy"}) {
    if (name.starts_with(stem) && name.find_first_not_of("0123456789.", stem.size()) == name.npos)
      return true;
  }
  return false;
}

bool is_shell(const std::string& word) {
  constexpr std::array<std::string_view, 5> shells{"sh", "bash", "dash", "ksh", "zsh"};
  return std::find(shells.begin(), shells.end(), basename_of(word)) != shells.end();
}

// Programs that run another one, and interpreters whose own flags we do not know: what comes behind
// them is theirs, so nothing is put in.
bool is_wrapper(const std::string& word) {
  constexpr std::array<std::string_view, 52> wrappers{
      "env",           "numactl",  "taskset",    "nsys",      "ncu",         "nvprof",
      "gdb",           "cuda-gdb", "gdbserver",  "lldb",      "rr",          "valgrind",
      "timeout",       "nice",     "ionice",     "chrt",      "time",        "stdbuf",
      "strace",        "ltrace",   "perf",       "rocprof",   "rocprofv2",   "compute-sanitizer",
      "cuda-memcheck", "nohup",    "setsid",     "unshare",   "chroot",      "sudo",
      "conda",         "mamba",    "micromamba", "apptainer", "singularity", "docker",
      "podman",        "enroot",   "uv",         "poetry",    "pipenv",      "pixi",
      "hatch",         "xvfb-run", "prlimit",    "catchsegv", "perl",        "julia",
      "Rscript",       "node",     "java",       "ruby"};
  return std::find(wrappers.begin(), wrappers.end(), basename_of(word)) != wrappers.end();
}

bool is_elf(const std::string& bytes) {
  return bytes.starts_with(
      "\x7f"
      "ELF");
}
bool is_text(const std::string& bytes) { return bytes.find('\0') == bytes.npos; }

// The interpreter that a first line #!… names, seen through env; empty if it names none.
std::string script_interpreter(const std::string& bytes) {
  if (!bytes.starts_with("#!")) return "";
  std::istringstream words(bytes.substr(2, bytes.find('\n') - 2));
  std::string word;
  words >> word;
  if (basename_of(word) != "env") return word;
  while (words >> word) {
    bool of_env = word.starts_with("-") || word.find('=') != word.npos;
    if (!of_env) return word;
  }
  return "";
}

constexpr std::size_t kHead = 4096;  // enough of a file to tell what it is

std::string python_interpreter(const Environment& environment, const Machine& machine) {
  if (auto chosen = environment.get("PYTHON_EXEC"); chosen && !chosen->empty()) return *chosen;
  if (auto folder = environment.get("VIRTUAL_ENV"); folder && !folder->empty()) {
    std::string python = *folder + "/bin/python";
    if (machine.is_executable_file(python)) return python;
  }
  return "python3";
}

// The file that exec would run for a bare word; empty if PATH has none.
std::string find_in_path(const std::string& word, const Environment& environment, const Machine& machine) {
  std::string path = environment.get("PATH").value_or("/usr/local/bin:/usr/bin:/bin");
  for (std::size_t begin = 0; begin <= path.size();) {
    std::size_t end = std::min(path.find(':', begin), path.size());
    std::string folder = path.substr(begin, end - begin);
    std::string file = (folder.empty() ? "." : folder) + "/" + word;
    if (machine.is_executable_file(file)) return file;
    begin = end + 1;
  }
  return "";
}

// The word as it is to be run: itself if PATH has it, else with the folder where it was found.
std::string look_up(const std::string& word, const Environment& environment, const Machine& machine) {
  if (word.find('/') != word.npos || !find_in_path(word, environment, machine).empty()) return word;
  const std::string& own = machine.own_folder;
  if (!own.empty()) {
    for (const std::string& folder : {own, own + "/../libexec/dlaunch", own + "/libexec/dlaunch"}) {
      if (machine.is_executable_file(folder + "/" + word)) return folder + "/" + word;
    }
  }
  if (machine.is_executable_file("./" + word)) return "./" + word;
  return word;
}

bool runs_as_python(const std::string& word, const Machine& machine) {
  if (ends_with_any(word, {".py", ".pyc", ".pyz"})) return true;
  if (word.find('/') == word.npos) return false;
  if (machine.is_folder(word)) return machine.is_readable_file(word + "/__main__.py");
  if (!machine.is_readable_file(word)) return false;
  std::string head = machine.read_file(word, kHead);
  if (is_python_interpreter(script_interpreter(head))) return true;
  // A script of another interpreter is not Python's because its x bit was forgotten: running it
  // directly gives the message that helps.
  return !machine.is_executable_file(word) && is_text(head) && !head.starts_with("#!");
}

// Splits an interpreter's words behind its script or module. `rest` is what belongs to the script.
struct Split {
  std::size_t behind = 0;  // how many words are the interpreter's, the script included; 0: no script
  std::string name;
  bool module = false;
  bool code = false;  // -c: there is a place to put arguments, but no text of a file
};

Split split_python(const std::vector<std::string>& words) {
  for (std::size_t i = 1; i < words.size(); ++i) {
    const std::string& word = words[i];
    if (word.size() < 2 || word[0] != '-') return {i + 1, word == "-" ? "" : word, false, word == "-"};
    if (word.starts_with("--")) {
      if (word == "--check-hash-based-pycs") ++i;
      continue;
    }
    for (std::size_t at = 1; at < word.size(); ++at) {
      if (std::string_view("mcWX").find(word[at]) == std::string_view::npos) continue;
      bool joined = at + 1 < word.size();
      if (!joined) ++i;
      if (i >= words.size()) return {};
      std::string value = joined ? word.substr(at + 1) : words[i];
      if (word[at] == 'm') return {i + 1, value, true, false};
      if (word[at] == 'c') return {i + 1, "", false, true};
      break;
    }
  }
  return {};
}

Split split_shell(const std::vector<std::string>& words) {
  for (std::size_t i = 1; i < words.size(); ++i) {
    const std::string& word = words[i];
    if (word == "--" || word == "-") return i + 1 < words.size() ? Split{i + 2, words[i + 1]} : Split{};
    if (word.empty() || (word[0] != '-' && word[0] != '+')) return {i + 1, word};
    if (word == "--rcfile" || word == "--init-file") {
      ++i;
    } else if (!word.starts_with("--")) {
      if (word.find_first_of("cs") != word.npos) return {};  // a command, or standard input
      if (word.back() == 'o' || word.back() == 'O') ++i;
    }
  }
  return {};
}

// What a wrapper seems to run, for the scan of its text alone.
void guess_text(const std::vector<std::string>& words, Command& command) {
  for (std::size_t i = 1; i < words.size(); ++i) {
    if (is_python_interpreter(words[i])) {
      Split split = split_python({words.begin() + static_cast<std::ptrdiff_t>(i), words.end()});
      command.text = split.name.empty() ? Command::Text::none
                     : split.module     ? Command::Text::python_module
                                        : Command::Text::python_file;
      command.text_name = split.name;
      return;
    }
    if (ends_with_any(words[i], {".py"})) {
      command.text = Command::Text::python_file;
      command.text_name = words[i];
      return;
    }
  }
}

Command python_command(const std::vector<std::string>& words, bool module, const std::string& interpreter) {
  Command command;
  command.program.kind = module ? Program::Kind::python_module : Program::Kind::python_script;
  command.program.prefix = {interpreter, "-u"};
  if (module) command.program.prefix.push_back("-m");
  command.program.prefix.push_back(words[0]);
  command.program.arguments.assign(words.begin() + 1, words.end());
  command.text = module ? Command::Text::python_module : Command::Text::python_file;
  command.text_name = words[0];
  command.is_python = true;
  return command;
}

void take_prefix(const std::vector<std::string>& words, std::size_t length, Program& program) {
  program.prefix.assign(words.begin(), words.begin() + static_cast<std::ptrdiff_t>(length));
  program.arguments.assign(words.begin() + static_cast<std::ptrdiff_t>(length), words.end());
}

Command direct_command(std::vector<std::string> words, const Environment& environment,
                       const Machine& machine) {
  Command command;
  const std::string typed = words[0];
  words[0] = look_up(typed, environment, machine);
  take_prefix(words, 1, command.program);
  if (is_python_interpreter(typed)) {
    Split split = split_python(words);
    command.program.takes_injected = split.behind > 0;
    take_prefix(words, std::max<std::size_t>(split.behind, 1), command.program);
    command.is_python = split.behind > 0 && !split.code;
    if (command.is_python) {
      command.text = split.module ? Command::Text::python_module : Command::Text::python_file;
      command.text_name = split.name;
    }
  } else if (is_shell(typed)) {
    Split split = split_shell(words);
    command.program.takes_injected = split.behind > 0;
    take_prefix(words, std::max<std::size_t>(split.behind, 1), command.program);
    if (split.behind > 0) {
      command.text = Command::Text::shell_file;
      command.text_name = split.name;
    }
  } else if (is_wrapper(typed)) {
    command.program.takes_injected = false;
    guess_text(words, command);
  } else {
    bool bare = words[0].find('/') == words[0].npos;
    std::string file = bare ? find_in_path(words[0], environment, machine) : words[0];
    std::string head = file.empty() ? "" : machine.read_file(file, kHead);
    command.is_binary = is_elf(head);
    std::string interpreter = script_interpreter(head);
    command.text = is_shell(interpreter)                ? Command::Text::shell_file
                   : is_python_interpreter(interpreter) ? Command::Text::python_file
                                                        : Command::Text::none;
    command.text_name = file;
  }
  return command;
}

}  // namespace

Command make_command(const std::vector<std::string>& words, const RunAs& as, const Environment& environment,
                     const Machine& machine) {
  bool python = as.run_path || as.module || (!as.no_python && runs_as_python(words[0], machine));
  Command command;
  if (python) {
    command = python_command(words, as.module && !as.run_path, python_interpreter(environment, machine));
  } else {
    command = direct_command(words, environment, machine);
    if (as.no_python) command.is_binary = false;
    // A word found in the working directory alone is a path after all, and may be a Python script.
    const std::string& found = command.program.prefix[0];
    if (!as.no_python && found == "./" + words[0] && runs_as_python(found, machine)) {
      std::vector<std::string> path = words;
      path[0] = found;
      command = python_command(path, false, python_interpreter(environment, machine));
    }
  }
  command.program.typed = words[0];
  return command;
}

}  // namespace dlaunch
