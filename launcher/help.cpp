// The only file that knows CLI11.
#include <CLI/CLI.hpp>
#include <map>

#include "dlaunch/flag.hpp"
#include "launcher/flags.hpp"

namespace dlaunch {

namespace {

constexpr std::size_t kColumn = 31;

class TableFormatter : public CLI::Formatter {
 public:
  std::string make_option(const CLI::Option* option, bool) const override {
    const Flag& flag = *find_flag(option->get_lnames().front());
    std::string left =
        "  " + (flag.letter ? std::string("-") + flag.letter + " " : "") + "--" + std::string(flag.name);
    if (flag.takes == Flag::Takes::optional) left += flag.value_name;
    if (flag.takes == Flag::Takes::value) left += " " + std::string(flag.value_name);
    left.resize(std::max(kColumn, left.size() + 1), ' ');
    std::string variable = flag.pet ? pet_variable(flag) : own_variable(flag);
    return left + std::string(flag.help) + " [" + std::string(flag.default_text) +
           (variable.empty() ? "" : "; " + variable) + "]\n";
  }
};

// The rows of the table that `wanted` accepts. A job's own few flags take CLI11 some microseconds, the
// whole table takes it a third of a millisecond.
struct Table {
  CLI::App app;
  std::map<std::string, std::string> values;

  template <class Predicate>
  explicit Table(Predicate wanted) {
    app.set_help_flag();
    for (const Flag& flag : all_flags()) {
      if (!wanted(flag)) continue;
      std::string name(flag.name);
      app.add_option("--" + name, values[name], std::string(flag.help))
          ->group(std::string(title(flag.group)));
    }
    for (const Flag& flag : all_flags()) {
      if (flag.excludes.empty() || !values.contains(std::string(flag.name))) continue;
      CLI::Option* other = app.get_option_no_throw("--" + std::string(flag.excludes));
      if (other) app.get_option("--" + std::string(flag.name))->excludes(other);
    }
  }
};

std::string without_effect() {
  std::string text = "Accepted without effect:\n ", line;
  for (const Flag& flag : all_flags()) {
    if (flag.status == Flag::Status::used) continue;
    std::string name = " --" + std::string(flag.name);
    if (line.size() + name.size() > 90) {
      text += line + "\n ";
      line.clear();
    }
    line += name;
  }
  return text + line + "\n";
}

}  // namespace

Result<void> check_exclusions(const Typed& typed) {
  Table table([&](const Flag& flag) { return typed.flags.contains(std::string(flag.name)); });
  std::vector<std::string> words;  // without their values, in which CLI11 would see brackets
  for (const auto& [name, value] : typed.flags) words.push_back("--" + name + "=given");
  try {
    table.app.parse(words);
  } catch (const CLI::ExcludesError& error) {
    std::string text = error.what(), middle = " excludes ";
    text.replace(text.find(middle), middle.size(), " and ");
    return Error{Errc::usage, text + " cannot be used together", "leave out one of the two"};
  } catch (const CLI::Error& error) {
    return Error{Errc::usage, error.what()};
  }
  return {};
}

std::string help_text() {
  Table table([](const Flag& flag) { return !flag.help.empty(); });
  TableFormatter formatter;
  std::string text =
      "Usage: dlaunch [flags] program [its arguments]\n"
      "Starts the workers of one node of a training job, as torch.distributed.launch and torchrun do.\n"
      "\n"
      "Flags come first, with underscores or dashes, as --flag value or --flag=value. Behind each: its\n"
      "default and its variable. DLAUNCH_<FLAG> works for every flag, and beats PET_<FLAG>.\n";
  for (Flag::Group group :
       {Flag::Group::size, Flag::Group::meeting, Flag::Group::program, Flag::Group::copies,
        Flag::Group::devices, Flag::Group::life, Flag::Group::output, Flag::Group::asking}) {
    text += "\n" + std::string(title(group)) + ":\n";
    for (const CLI::Option* option : table.app.get_options()) {
      if (option->get_group() == title(group)) text += formatter.make_option(option, false);
    }
  }
  return text + "\n" + without_effect();
}

}  // namespace dlaunch
