#include "launcher/flags.hpp"

#include <algorithm>
#include <cctype>

#include "dlaunch/flag.hpp"
#include "launcher/edit_distance.hpp"

namespace dlaunch {

namespace {

// The words that have not been looked at yet.
struct Words {
  const std::vector<std::string>& all;
  std::size_t next = 1;

  bool empty() const { return next >= all.size(); }
  const std::string& front() const { return all[next]; }
  std::string take() { return all[next++]; }
};

std::string canonical(std::string name) {
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

// In the spelling that the user prefers, as far as that can be seen.
std::string spelled_like(std::string_view typed, std::string_view name) {
  std::string text(name);
  bool dashes = typed.find('-') != typed.npos && typed.find('_') == typed.npos;
  if (dashes) std::replace(text.begin(), text.end(), '_', '-');
  return "'--" + text + "'";
}

Error unknown_flag(const std::string& typed_word) {
  std::string typed = typed_word.substr(0, typed_word.find('='));
  std::string body = typed.substr(std::min(typed.find_first_not_of('-'), typed.size()));
  std::string name = canonical(body);
  std::vector<std::string> names, longer;
  for (const Flag& flag : all_flags()) {
    names.emplace_back(flag.name);
    if (flag.name.starts_with(name)) longer.emplace_back(flag.name);
  }
  std::string near = longer.size() == 1 ? longer.front() : nearest(name, names);
  std::string hint;
  if (longer.size() > 1) {
    for (const auto& one : longer)
      hint += (hint.empty() ? "did you mean " : " or ") + spelled_like(body, one);
    hint += "?";
  } else if (!near.empty()) {
    hint = "did you mean " + spelled_like(body, near) + "?";
  } else {
    hint = "flags of dlaunch come first, then the program, then the program's own";
  }
  return Error{Errc::usage, "unknown flag '" + typed + "'", hint};
}

// Exact names first; then prefixes, among torch's flags alone.
Result<const Flag*> resolve(const std::string& word) {
  std::string body = word.substr(2, word.find('=') - 2);
  std::string name = canonical(body);
  if (const Flag* exact = find_flag(name)) return exact;
  std::vector<const Flag*> fitting;
  for (const Flag& flag : all_flags()) {
    if (flag.owner == Flag::Owner::torch && !name.empty() && flag.name.starts_with(name))
      fitting.push_back(&flag);
  }
  if (fitting.empty()) return unknown_flag(word);
  if (fitting.size() == 1) return fitting.front();
  std::string names;
  for (const Flag* flag : fitting) {
    names += (names.empty() ? "" : flag == fitting.back() ? " or " : ", ") + spelled_like(body, flag->name);
  }
  return Error{Errc::usage, "flag '--" + body + "' could be " + names, "write the name out"};
}

const Flag* find_letter(char letter) {
  for (const Flag& flag : all_flags()) {
    if (flag.letter == letter) return &flag;
  }
  return nullptr;
}

bool could_be_value(const std::string& word) {
  bool looks_like_flag =
      word.size() > 1 && word[0] == '-' && !std::isdigit(static_cast<unsigned char>(word[1]));
  return !looks_like_flag;
}

Result<std::string> take_value(const Flag& flag, Words& words) {
  std::string name = "--" + std::string(flag.name);
  std::string hint = "give it as " + name + " " + std::string(flag.value_name);
  if (words.empty()) return Error{Errc::usage, name + " needs a value, and nothing follows", hint};
  if (!could_be_value(words.front())) {
    return Error{Errc::usage, name + " needs a value, got '" + words.front() + "'", hint};
  }
  return words.take();
}

Result<void> take_long(const std::string& word, Words& words, Typed& typed) {
  auto flag = resolve(word);
  if (!flag) return flag.error();
  std::string name((*flag)->name);
  auto equals = word.find('=');
  if (equals != word.npos) {
    std::string value = word.substr(equals + 1);
    if ((*flag)->takes == Flag::Takes::nothing) {
      return Error{Errc::usage, "--" + name + " takes no value, got '" + value + "'",
                   "leave out what follows the equals sign"};
    }
    typed.flags[name] = value;
  } else if ((*flag)->takes == Flag::Takes::value) {
    auto value = take_value(**flag, words);
    if (!value) return value.error();
    typed.flags[name] = *value;
  } else {
    typed.flags[name] = "1";
  }
  return {};
}

// -m, -r 3, -r3, -r=3, and several in one word: -mr3.
Result<void> take_short(const std::string& word, Words& words, Typed& typed) {
  for (std::size_t i = 1; i < word.size(); ++i) {
    const Flag* flag = find_letter(word[i]);
    if (!flag) return unknown_flag(word);
    std::string name(flag->name);
    std::string rest = word.substr(i + 1);
    if (flag->takes == Flag::Takes::nothing) {
      if (rest.starts_with("=")) {
        return Error{Errc::usage, "--" + name + " takes no value, got '" + rest.substr(1) + "'",
                     "leave out what follows the equals sign"};
      }
      typed.flags[name] = "1";
      continue;
    }
    if (rest.starts_with("="))
      rest.erase(0, 1);
    else if (rest.empty()) {
      auto value = take_value(*flag, words);
      if (!value) return value.error();
      rest = *value;
    }
    typed.flags[name] = rest;
    return {};
  }
  return {};
}

}  // namespace

Result<Typed> scan(const std::vector<std::string>& argv) {
  Typed typed;
  if (!argv.empty()) typed.invoked_as = argv[0].substr(argv[0].rfind('/') + 1);
  Words words{argv};
  while (!words.empty()) {
    const std::string& word = words.front();
    if (word.size() < 2 || word[0] != '-') break;
    words.next++;
    if (word == "--") break;
    auto taken = word[1] == '-' ? take_long(word, words, typed) : take_short(word, words, typed);
    if (!taken) return taken.error();
  }
  typed.program.assign(argv.begin() + std::min(words.next, argv.size()), argv.end());
  return typed;
}

}  // namespace dlaunch
