// What the texts of a program say: which spelling of --local_rank it reads, and whether it opens its
// group elsewhere than dlaunch tells it.
#include <algorithm>
#include <cctype>
#include <deque>
#include <set>

#include "dlaunch/command.hpp"

namespace dlaunch {

namespace {

constexpr std::size_t kMostFiles = 100;
constexpr std::size_t kMostBytesOfFile = 1 << 20;
constexpr std::size_t kMostBytes = 8 << 20;

bool is_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; }

// Positions of `needle` in `text`.
std::vector<std::size_t> positions(std::string_view text, std::string_view needle) {
  std::vector<std::size_t> found;
  for (auto at = text.find(needle); at != text.npos; at = text.find(needle, at + 1)) found.push_back(at);
  return found;
}

// The option string itself, not the head of a longer one or the tail of another word.
bool holds_option(std::string_view text, std::string_view option) {
  for (std::size_t at : positions(text, option)) {
    char before = at ? text[at - 1] : ' ';
    std::size_t end = at + option.size();
    char after = end < text.size() ? text[end] : ' ';
    if (!is_word(before) && before != '-' && !is_word(after) && after != '-') return true;
  }
  return false;
}

std::string_view skip_blanks(std::string_view text) {
  auto first = text.find_first_not_of(" \t");
  return first == text.npos ? std::string_view{} : text.substr(first);
}

bool begins_assignment(std::string_view text) {
  text = skip_blanks(text);
  return text.starts_with("=") && !text.starts_with("==");
}

// environ["MASTER_ADDR"] = …; setdefault, putenv, setenv with the name first; {"MASTER_ADDR": …} and
// MASTER_ADDR=… in the arguments of environ.update.
bool assigns_in_python(std::string_view text, std::string_view name) {
  for (std::size_t at : positions(text, name)) {
    std::string_view before = text.substr(0, at), after = text.substr(at + name.size());
    if (!before.empty() && is_word(before.back())) continue;
    bool quoted = !before.empty() && (before.back() == '\'' || before.back() == '"') && !after.empty() &&
                  after[0] == before.back();
    std::string_view line = before.substr(before.rfind('\n') == before.npos ? 0 : before.rfind('\n') + 1);
    if (!quoted) {
      // environ.update(MASTER_ADDR=…), though not a module's own MASTER_ADDR = …
      if (!after.empty() && !is_word(after[0]) && begins_assignment(after) &&
          line.find("environ.update(") != line.npos) {
        return true;
      }
      continue;
    }
    before.remove_suffix(1);
    after.remove_prefix(1);
    auto last = before.find_last_not_of(" \t\n");
    if (last == before.npos) continue;
    before = before.substr(0, last + 1);
    if (before.ends_with("[")) {
      std::string_view rest = skip_blanks(after);
      bool of_environment = before.ends_with("environ[") || before.ends_with("environb[");
      if (of_environment && rest.starts_with("]") && begins_assignment(rest.substr(1))) return true;
    }
    for (std::string_view call : {"setdefault(", "putenv(", "setenv("}) {
      if (before.ends_with(call)) return true;
    }
    bool in_dictionary = skip_blanks(after).starts_with(":") &&
                         before.rfind("environ.update(") != before.npos &&
                         before.size() - before.rfind("environ.update(") < 400;
    if (in_dictionary) return true;
  }
  return false;
}

void read_addresses(std::string_view text, Reading& reading) {
  for (std::size_t at : positions(text, "tcp://")) {
    std::string_view rest = text.substr(at + 6);
    reading.addresses.emplace_back(rest.substr(0, std::min<std::size_t>(rest.find('\n'), 300)));
  }
}

void read_options(std::string_view text, Reading& reading) {
  reading.underscore = reading.underscore || holds_option(text, "--local_rank");
  reading.dash = reading.dash || holds_option(text, "--local-rank");
}

std::string folder_of(const std::string& path) {
  auto slash = path.rfind('/');
  return slash == path.npos ? "." : slash == 0 ? "/" : path.substr(0, slash);
}

// "127.0.0.1:29500', …": does it name the job's own port, as a number or as the variable?
bool names_own_port(const std::string& address, std::uint16_t master_port) {
  if (address.find("MASTER_PORT") != address.npos) return true;
  std::string authority = address.substr(0, address.find_first_of("\"' \t/,)?`"));
  auto colon = authority.rfind(':');
  if (colon == authority.npos || master_port == 0) return false;
  return authority.substr(colon + 1) == std::to_string(master_port);
}

// The files of a module below `root`, as Python would find it.
std::vector<std::string> files_of(const std::string& module, const std::string& root,
                                  const std::string& own_folder, const Machine& machine) {
  std::size_t dots = std::min(module.find_first_not_of('.'), module.size());
  std::string base = dots ? own_folder : root;
  for (std::size_t i = 1; i < dots; ++i) base += "/..";
  std::string path = base;
  std::vector<std::string> files;
  std::string rest = module.substr(dots);
  for (std::size_t begin = 0; begin < rest.size();) {  // a.b.c runs a/__init__, a/b/__init__ as well
    std::size_t end = std::min(rest.find('.', begin), rest.size());
    path += "/" + rest.substr(begin, end - begin);
    if (machine.is_readable_file(path + "/__init__.py")) files.push_back(path + "/__init__.py");
    begin = end + 1;
  }
  if (path != base && machine.is_readable_file(path + ".py")) files.push_back(path + ".py");
  return files;
}

struct Start {
  std::vector<std::string> files;
  std::string root;  // where its imports are looked for
};

Start start_of(const Command& command, const Environment& environment, const Machine& machine) {
  if (command.text == Command::Text::python_file) {
    if (machine.is_folder(command.text_name))
      return {{command.text_name + "/__main__.py"}, command.text_name};
    return {{command.text_name}, folder_of(command.text_name)};
  }
  // A module: the working directory, then PYTHONPATH. What is installed is out of sight without Python.
  std::vector<std::string> roots{"."};
  std::string more = environment.get("PYTHONPATH").value_or("");
  for (std::size_t begin = 0; begin < more.size();) {
    std::size_t end = std::min(more.find(':', begin), more.size());
    if (end > begin) roots.push_back(more.substr(begin, end - begin));
    begin = end + 1;
  }
  for (const std::string& root : roots) {
    auto files = files_of(command.text_name, root, root, machine);
    auto main = files_of(command.text_name + ".__main__", root, root, machine);
    for (const auto& file : main) {
      if (std::find(files.begin(), files.end(), file) == files.end()) files.push_back(file);
    }
    if (!files.empty()) return {files, root};
  }
  return {};
}

}  // namespace

void read_python(std::string_view text, Reading& reading) {
  read_options(text, reading);
  read_addresses(text, reading);
  for (std::string_view name : {"MASTER_ADDR", "MASTER_PORT"}) {
    reading.assigns_master = reading.assigns_master || assigns_in_python(text, name);
  }
}

void read_shell(std::string_view text, Reading& reading) {
  read_addresses(text, reading);
  for (std::string_view name : {"MASTER_ADDR=", "MASTER_PORT="}) {
    for (std::size_t at : positions(text, name)) {
      char before = at ? text[at - 1] : '\n';
      char after = at + name.size() < text.size() ? text[at + name.size()] : '\n';
      if (std::string_view(" \t\n;&(").find(before) != std::string_view::npos && after != '=') {
        reading.assigns_master = true;
      }
    }
  }
}

std::vector<std::string> imported_modules(std::string_view text) {
  std::vector<std::string> modules;
  auto word = [](std::string_view& rest) {
    rest = skip_blanks(rest);
    std::size_t end = 0;
    while (end < rest.size() && (is_word(rest[end]) || rest[end] == '.')) ++end;
    std::string taken(rest.substr(0, end));
    rest.remove_prefix(end);
    return taken;
  };
  for (std::size_t begin = 0; begin < text.size();) {
    std::size_t end = std::min(text.find('\n', begin), text.size());
    std::string_view line = skip_blanks(text.substr(begin, end - begin));
    bool from = line.starts_with("from "), import = line.starts_with("import ");
    if (from || import) {
      line.remove_prefix(from ? 5 : 7);
      if (import) {  // import a.b as c, d
        for (;;) {
          if (std::string name = word(line); !name.empty()) modules.push_back(name);
          auto comma = line.find(',');
          if (comma == line.npos) break;
          line.remove_prefix(comma + 1);
        }
      } else {  // from a.b import (c as d, e, over several lines)
        std::string module = word(line);
        line = skip_blanks(line);
        if (!module.empty() && line.starts_with("import")) {
          modules.push_back(module);
          std::string_view names = line.substr(6);
          if (skip_blanks(names).starts_with("(")) {
            std::size_t from_here = static_cast<std::size_t>(names.data() - text.data());
            std::size_t close = std::min(text.find(')', from_here), text.size());
            names = text.substr(from_here, close - from_here);
            names = skip_blanks(names).substr(1);
            end = std::max(end, close);
          }
          while (!names.empty()) {
            auto first = names.find_first_not_of(" \t\r\n(\\");
            if (first == names.npos || !is_word(names[first])) break;
            names.remove_prefix(first);
            std::string name = word(names);
            modules.push_back(module + (module.back() == '.' ? "" : ".") + name);
            auto comma = names.find(',');
            if (comma == names.npos) break;
            names.remove_prefix(comma + 1);
          }
        }
      }
    }
    begin = end + 1;
  }
  return modules;
}

Reading read_texts(const Command& command, const Environment& environment, const Machine& machine) {
  Reading reading;
  if (command.text == Command::Text::none) return reading;
  if (command.text == Command::Text::shell_file) {
    read_shell(machine.read_file(command.text_name, kMostBytesOfFile), reading);
    return reading;
  }
  Start start = start_of(command, environment, machine);
  std::deque<std::string> waiting(start.files.begin(), start.files.end());
  std::set<std::string> seen(waiting.begin(), waiting.end());
  std::size_t files = 0, bytes = 0;
  while (!waiting.empty() && files < kMostFiles && bytes < kMostBytes) {
    std::string file = waiting.front();
    waiting.pop_front();
    std::string text = machine.read_file(file, kMostBytesOfFile);
    ++files;
    bytes += text.size();
    read_python(text, reading);
    for (const std::string& module : imported_modules(text)) {
      for (const std::string& next : files_of(module, start.root, folder_of(file), machine)) {
        if (seen.insert(next).second) waiting.push_back(next);
      }
    }
  }
  return reading;
}

bool opens_own_group(const Reading& reading, const std::vector<std::string>& arguments,
                     std::uint16_t master_port) {
  if (reading.assigns_master) return true;
  auto elsewhere = [&](const std::string& address) { return !names_own_port(address, master_port); };
  if (std::any_of(reading.addresses.begin(), reading.addresses.end(), elsewhere)) return true;
  for (const std::string& argument : arguments) {
    auto at = argument.find("tcp://");
    if (at != argument.npos && elsewhere(argument.substr(at + 6))) return true;
  }
  return false;
}

}  // namespace dlaunch
