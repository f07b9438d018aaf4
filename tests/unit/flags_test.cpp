#include "launcher/flags.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>

#include "dlaunch/flag.hpp"

namespace dlaunch {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Pair;
using testing::UnorderedElementsAre;

Typed scanned(std::vector<std::string> words) {
  words.insert(words.begin(), "dlaunch");
  auto typed = scan(words);
  EXPECT_TRUE(typed) << (typed ? "" : typed.error().text);
  return typed ? *typed : Typed{};
}

// Text and hint, as a person sees them.
std::string refused(std::vector<std::string> words) {
  words.insert(words.begin(), "dlaunch");
  auto typed = scan(words);
  if (typed) return "accepted";
  EXPECT_EQ(typed.error().code, Errc::usage);
  return typed.error().text + "\n" + typed.error().hint;
}

TEST(Scan, TakesBothSpellingsOfEveryFlag) {
  for (const Flag& flag : all_flags()) {
    std::string dashes(flag.name);
    std::replace(dashes.begin(), dashes.end(), '_', '-');
    for (const std::string& name : {std::string(flag.name), dashes}) {
      std::vector<std::string> words{"--" + name};
      if (flag.takes == Flag::Takes::value) words.push_back("value");
      words.push_back("prog");
      Typed typed = scanned(words);
      EXPECT_THAT(typed.flags,
                  ElementsAre(Pair(flag.name, flag.takes == Flag::Takes::value ? "value" : "1")));
      EXPECT_THAT(typed.program, ElementsAre("prog"));
    }
  }
}

TEST(Scan, TakesAValueBehindABlankOrAnEqualsSign) {
  EXPECT_THAT(scanned({"--nnodes", "2", "--node-rank=1", "x"}).flags,
              UnorderedElementsAre(Pair("nnodes", "2"), Pair("node_rank", "1")));
  EXPECT_EQ(scanned({"--rdzv_conf=timeout=3,is_host=1", "x"}).flags.at("rdzv_conf"), "timeout=3,is_host=1");
  EXPECT_EQ(scanned({"--rdzv_endpoint=", "x"}).flags.at("rdzv_endpoint"), "");
  EXPECT_EQ(scanned({"--nnodes", "-1", "x"}).flags.at("nnodes"), "-1");
}

TEST(Scan, LeavesTheProgramAndAllBehindItAlone) {
  EXPECT_THAT(
      scanned({"--nnodes", "1", "x.py", "--nnodes", "2", "--nope", "--", "-m", "--process_num=3"}).program,
      ElementsAre("x.py", "--nnodes", "2", "--nope", "--", "-m", "--process_num=3"));
  EXPECT_THAT(scanned({"x.py", "--help"}).flags, IsEmpty());
  EXPECT_THAT(scanned({" "}).program, ElementsAre(" "));
  EXPECT_THAT(scanned({""}).program, ElementsAre(""));
  EXPECT_THAT(scanned({"-"}).program, ElementsAre("-"));
  EXPECT_THAT(scanned({}).program, IsEmpty());
}

TEST(Scan, SwallowsOneLeadingDoubleDashOnly) {
  EXPECT_THAT(scanned({"--nnodes", "1", "--", "--x", "a"}).program, ElementsAre("--x", "a"));
  EXPECT_THAT(scanned({"--", "x", "--", "a"}).program, ElementsAre("x", "--", "a"));
  EXPECT_THAT(scanned({"--"}).program, IsEmpty());
}

TEST(Scan, TakesUnambiguousPrefixesOfTorchsFlags) {
  EXPECT_EQ(scanned({"--nproc", "2", "x"}).flags.at("nproc_per_node"), "2");
  EXPECT_EQ(scanned({"--nproc-p=2", "x"}).flags.at("nproc_per_node"), "2");
  EXPECT_EQ(scanned({"--master_a", "h", "x"}).flags.at("master_addr"), "h");
  EXPECT_EQ(scanned({"--he"}).flags.at("help"), "1");
}

TEST(Scan, WantsTheWholeNameOfAFlagOfItsOwn) {
  EXPECT_EQ(refused({"--process_nu", "2", "x"}),
            "unknown flag '--process_nu'\ndid you mean '--process_num'?");
  EXPECT_EQ(refused({"--process", "2", "x"}),
            "unknown flag '--process'\n"
            "did you mean '--process_num' or '--process_index' or '--process_group'?");
}

TEST(Scan, DecidesAPrefixAmongTorchsFlagsWhereOneOfItsOwnWouldFitToo) {
  EXPECT_THAT(scanned({"--log_l", "x", "prog"}).flags, ElementsAre(Pair("log_line_prefix_template", "x")));
  EXPECT_THAT(scanned({"--log_level", "debug", "prog"}).flags, ElementsAre(Pair("log_level", "debug")));
}

TEST(Scan, LetsAnExactNameWinOverLongerOnes) {
  EXPECT_THAT(scanned({"--store", "agent", "x"}).flags, ElementsAre(Pair("store", "agent")));
}

TEST(Scan, RefusesAnAmbiguousPrefixAndNamesWhatItCouldBe) {
  EXPECT_EQ(refused({"--no", "x"}),
            "flag '--no' could be '--node_rank' or '--no_python'\nwrite the name out");
  EXPECT_EQ(refused({"--master-", "x"}),
            "flag '--master-' could be '--master-addr' or '--master-port'\nwrite the name out");
}

TEST(Scan, LetsTheLastOfARepeatedFlagWin) {
  EXPECT_EQ(scanned({"--nnodes", "1", "--nnodes=3", "x"}).flags.at("nnodes"), "3");
}

TEST(Scan, TakesShortFlagsInAllTheirForms) {
  Typed typed = scanned({"-m", "-r", "3", "-t0:1", "pkg.mod", "-m"});
  EXPECT_THAT(typed.flags,
              UnorderedElementsAre(Pair("module", "1"), Pair("redirects", "3"), Pair("tee", "0:1")));
  EXPECT_THAT(typed.program, ElementsAre("pkg.mod", "-m"));
  EXPECT_EQ(scanned({"-r=2", "x"}).flags.at("redirects"), "2");
  EXPECT_THAT(scanned({"-mr3", "x"}).flags,
              UnorderedElementsAre(Pair("module", "1"), Pair("redirects", "3")));
  EXPECT_EQ(scanned({"-h"}).flags.at("help"), "1");
}

TEST(Scan, NamesTheNearestFlagInTheSpellingThatWasUsed) {
  EXPECT_EQ(refused({"--nproc-pre-node", "4", "x"}),
            "unknown flag '--nproc-pre-node'\ndid you mean '--nproc-per-node'?");
  EXPECT_EQ(refused({"--nproc_pre_node=4", "x"}),
            "unknown flag '--nproc_pre_node'\ndid you mean '--nproc_per_node'?");
  EXPECT_EQ(refused({"-nnodes", "4", "x"}), "unknown flag '-nnodes'\ndid you mean '--nnodes'?");
}

TEST(Scan, SaysThatFlagsOfTheProgramComeBehindIt) {
  EXPECT_EQ(refused({"--lr", "3", "W"}),
            "unknown flag '--lr'\nflags of dlaunch come first, then the program, then the program's own");
  EXPECT_THAT(refused({"-x", "W"}), HasSubstr("unknown flag '-x'"));
  EXPECT_THAT(refused({"---", "W"}), HasSubstr("unknown flag '---'"));
}

TEST(Scan, RefusesAFlagWithoutItsValue) {
  EXPECT_EQ(refused({"--nnodes"}), "--nnodes needs a value, and nothing follows\ngive it as --nnodes N");
  EXPECT_EQ(refused({"--nnodes", "--node_rank", "1", "x"}),
            "--nnodes needs a value, got '--node_rank'\ngive it as --nnodes N");
  EXPECT_EQ(refused({"-r"}), "--redirects needs a value, and nothing follows\ngive it as --redirects SPEC");
}

TEST(Scan, RefusesAValueForASwitch) {
  EXPECT_EQ(refused({"--standalone=1", "x"}),
            "--standalone takes no value, got '1'\nleave out what follows the equals sign");
  EXPECT_EQ(refused({"-m=1", "x"}),
            "--module takes no value, got '1'\nleave out what follows the equals sign");
}

TEST(Scan, NeverTakesTheNextWordAsTheFormatOfExplain) {
  Typed typed = scanned({"--explain", "json"});
  EXPECT_EQ(typed.flags.at("explain"), "1");
  EXPECT_THAT(typed.program, ElementsAre("json"));
  EXPECT_EQ(scanned({"--explain=json", "x"}).flags.at("explain"), "json");
}

TEST(Scan, KeepsTheNameByWhichItWasStarted) {
  EXPECT_EQ(scan({"/usr/bin/torchrun", "x"})->invoked_as, "torchrun");
  EXPECT_EQ(scan({"dlaunch"})->invoked_as, "dlaunch");
}

std::string excluded(std::map<std::string, std::string> flags) {
  auto checked = check_exclusions(Typed{std::move(flags), {}, "dlaunch"});
  return checked ? "allowed" : checked.error().text + "\n" + checked.error().hint;
}

TEST(Exclusions, StopFlagsThatContradictEachOther) {
  const std::string hint = " cannot be used together\nleave out one of the two";
  EXPECT_EQ(excluded({{"module", "1"}, {"no_python", "1"}}), "--module and --no_python" + hint);
  EXPECT_EQ(excluded({{"process_num", "2"}, {"keep_going", "1"}, {"stop_all", "1"}}),
            "--keep_going and --stop_all" + hint);
  EXPECT_EQ(excluded({{"log_file", "f"}, {"tee", "3"}}), "--tee and --log_file" + hint);
  EXPECT_EQ(excluded({{"log_file", "f"}, {"redirects", "3"}}), "--redirects and --log_file" + hint);
}

TEST(Exclusions, LetEverythingElsePass) {
  std::map<std::string, std::string> all;
  for (const Flag& flag : all_flags()) {
    if (flag.excludes.empty()) all[std::string(flag.name)] = "";
  }
  EXPECT_EQ(excluded({}), "allowed");
  EXPECT_EQ(excluded({{"log_file", "[{},--tee=3]"}, {"log_dir", "{}"}}), "allowed");
  EXPECT_EQ(excluded({{"module", "1"}, {"tee", "3"}, {"nnodes", ""}}), "allowed");
  EXPECT_EQ(excluded(all), "allowed");
}

TEST(Help, FitsTwoScreens) {
  std::istringstream lines(help_text());
  int count = 0;
  for (std::string line; std::getline(lines, line); ++count) EXPECT_LE(line.size(), 100u) << line;
  EXPECT_LE(count, 100);
}

TEST(Help, SaysDefaultAndVariableOfEveryFlagThatHasAnEffect) {
  std::string help = help_text();
  for (const Flag& flag : all_flags()) {
    if (flag.help.empty()) continue;
    std::istringstream lines(help);
    std::string line, name = "--" + std::string(flag.name);
    bool found = false;
    while (!found && std::getline(lines, line)) found = line.starts_with("  " + name) || line.find(name) == 5;
    EXPECT_TRUE(found) << name;
    std::string variable = flag.pet ? pet_variable(flag) : own_variable(flag);
    EXPECT_THAT(line, HasSubstr("[" + std::string(flag.default_text)));
    if (!variable.empty()) {
      EXPECT_THAT(line, HasSubstr("; " + variable + "]"));
    }
  }
}

TEST(Help, NamesTheFlagsThatAreAcceptedWithoutEffect) {
  std::string help = help_text();
  for (const Flag& flag : all_flags()) {
    if (flag.status != Flag::Status::used) {
      EXPECT_THAT(help, HasSubstr(" --" + std::string(flag.name)));
    }
  }
}

TEST(FlagTable, HoldsEveryNameAndLetterOnce) {
  std::set<std::string_view> names;
  std::set<char> letters;
  for (const Flag& flag : all_flags()) {
    EXPECT_TRUE(names.insert(flag.name).second) << flag.name;
    if (flag.letter) {
      EXPECT_TRUE(letters.insert(flag.letter).second) << flag.letter;
    }
    EXPECT_EQ(flag.name.find('-'), flag.name.npos);
    if (!flag.excludes.empty()) {
      EXPECT_TRUE(find_flag(flag.excludes)) << flag.excludes;
    }
    if (flag.pet) {
      EXPECT_EQ(flag.owner, Flag::Owner::torch);
    }
  }
  EXPECT_EQ(find_flag("nope"), nullptr);
}

TEST(FlagTable, NamesItsVariables) {
  EXPECT_EQ(own_variable(*find_flag("nproc_per_node")), "DLAUNCH_NPROC_PER_NODE");
  EXPECT_EQ(pet_variable(*find_flag("nproc_per_node")), "PET_NPROC_PER_NODE");
  EXPECT_EQ(pet_variable(*find_flag("use_env")), "");
  EXPECT_EQ(own_variable(*find_flag("help")), "");
}

}  // namespace
}  // namespace dlaunch
