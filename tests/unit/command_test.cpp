#include "dlaunch/command.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fake_machine.hpp"

namespace dlaunch {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::UnorderedElementsAre;
using Kind = Program::Kind;
using Text = Command::Text;

class CommandTest : public testing::Test {
 protected:
  Command command(std::vector<std::string> words, RunAs as = {}, Environment::Map more = {}) {
    more.emplace("PATH", "/usr/local/bin:/usr/bin");
    environment_ = Environment(more);
    return make_command(words, as, environment_, machine_.view());
  }
  std::vector<std::string> prefix(std::vector<std::string> words, RunAs as = {}, Environment::Map more = {}) {
    return command(std::move(words), as, std::move(more)).program.prefix;
  }
  Reading reading(std::vector<std::string> words, RunAs as = {}, Environment::Map more = {}) {
    Command made = command(std::move(words), as, std::move(more));
    return read_texts(made, environment_, machine_.view());
  }

  FakeMachine machine_;
  Environment environment_;
};

// --- what is run ---

TEST_F(CommandTest, RunsPythonFilesWithPython) {
  for (const char* name : {"x.py", "a/x.pyc", "./x.pyz", "/a b/x.py", "missing.py"}) {
    Command made = command({name, "--a", "b"});
    EXPECT_EQ(made.program.kind, Kind::python_script) << name;
    EXPECT_THAT(made.program.prefix, ElementsAre("python3", "-u", name));
    EXPECT_THAT(made.program.arguments, ElementsAre("--a", "b"));
    EXPECT_EQ(made.program.typed, name);
    EXPECT_TRUE(made.program.takes_injected);
  }
}

TEST_F(CommandTest, RunsModulesWithPython) {
  Command made = command({"pkg.mod", "a"}, {.module = true});
  EXPECT_EQ(made.program.kind, Kind::python_module);
  EXPECT_THAT(made.program.prefix, ElementsAre("python3", "-u", "-m", "pkg.mod"));
  EXPECT_THAT(made.program.arguments, ElementsAre("a"));
}

TEST_F(CommandTest, RunsAnythingWithPythonWhenToldToRunAPath) {
  EXPECT_THAT(prefix({"/x/y"}, {.no_python = true, .run_path = true}), ElementsAre("python3", "-u", "/x/y"));
}

TEST_F(CommandTest, ChoosesTheInterpreter) {
  EXPECT_EQ(prefix({"x.py"}, {}, {{"PYTHON_EXEC", "/my/python"}, {"VIRTUAL_ENV", "/venv"}})[0], "/my/python");
  EXPECT_EQ(prefix({"x.py"}, {}, {{"VIRTUAL_ENV", "/venv"}})[0], "python3");  // one that is gone
  machine_.add("/venv/bin/python", "", true);
  EXPECT_EQ(prefix({"x.py"}, {}, {{"VIRTUAL_ENV", "/venv"}})[0], "/venv/bin/python");
  EXPECT_EQ(prefix({"x.py"}, {}, {{"VIRTUAL_ENV", ""}, {"PYTHON_EXEC", ""}})[0], "python3");
}

TEST_F(CommandTest, RunsPathsThatLookLikePythonWithPython) {
  machine_.folders = {"./app", "./plain"};
  machine_.add("./app/__main__.py", "");
  machine_.add("./tool", "#!/usr/bin/env python3\n", true);
  machine_.add("./notes", "print(1)\n");
  machine_.add("./empty", "");
  for (const char* path : {"./app", "./tool", "./notes", "./empty"}) {
    EXPECT_EQ(command({path}).program.kind, Kind::python_script) << path;
    EXPECT_EQ(command({path}, {.no_python = true}).program.kind, Kind::executable) << path;
  }
}

TEST_F(CommandTest, RunsOtherPathsDirectly) {
  machine_.folders = {"./plain"};
  machine_.add("./run.sh", "#!/bin/bash\n", true);
  machine_.add("./forgot.sh", "#!/bin/bash\n");
  machine_.add("./text", "hello\n", true);
  machine_.add("./binary", kElf);
  for (const char* path :
       {"./plain", "./run.sh", "./forgot.sh", "./text", "./binary", "./missing", " ", "./a b"}) {
    Command made = command({path, "x"});
    EXPECT_EQ(made.program.kind, Kind::executable) << path;
    EXPECT_THAT(made.program.prefix, ElementsAre(path));
    EXPECT_THAT(made.program.arguments, ElementsAre("x"));
  }
}

TEST_F(CommandTest, LooksForABareWordInPathThenInItsOwnFolders) {
  EXPECT_THAT(prefix({"train"}), ElementsAre("train"));
  machine_.add("/opt/dlaunch/bin/../libexec/dlaunch/train", kElf, true);
  EXPECT_THAT(prefix({"train"}), ElementsAre("/opt/dlaunch/bin/../libexec/dlaunch/train"));
  machine_.add("/opt/dlaunch/bin/train", kElf, true);
  EXPECT_THAT(prefix({"train"}), ElementsAre("/opt/dlaunch/bin/train"));
  machine_.add("/usr/bin/train", kElf, true);
  EXPECT_THAT(prefix({"train"}), ElementsAre("train"));
  EXPECT_EQ(command({"train"}).program.typed, "train");
}

TEST_F(CommandTest, NeverTakesABareWordForAFolderOrAFileWithoutTheXBit) {
  machine_.folders = {"train"};
  machine_.add("train/__main__.py", "");
  EXPECT_EQ(command({"train"}).program.kind, Kind::executable);
  EXPECT_THAT(prefix({"train"}), ElementsAre("train"));
  machine_.folders.clear();
  machine_.add("train", "print(1)\n");
  machine_.add("./train", "print(1)\n");
  EXPECT_THAT(prefix({"train"}), ElementsAre("train"));
}

TEST_F(CommandTest, FindsAnExecutableOfTheWorkingDirectoryLast) {
  machine_.add("./tool", "#!/bin/sh\n", true);
  EXPECT_THAT(prefix({"tool"}), ElementsAre("./tool"));
  machine_.add("./tool", "#!/usr/bin/python3\n", true);
  EXPECT_THAT(prefix({"tool", "a"}), ElementsAre("python3", "-u", "./tool"));
  EXPECT_EQ(command({"tool"}).program.typed, "tool");
  machine_.add("/usr/bin/tool", kElf, true);
  EXPECT_THAT(prefix({"tool"}), ElementsAre("tool"));
}

TEST_F(CommandTest, SeesTheInterpreterOfAFirstLineThroughEnv) {
  auto kind = [&](const std::string& line) {
    machine_.add("./tool", line + "\nprint(1)\n", true);
    return command({"./tool"}).program.kind;
  };
  for (const char* line : {"#!/usr/bin/python3", "#! /opt/conda/bin/python -u", "#!/usr/bin/env python3.11",
                           "#!/usr/bin/env -S A=1 python -u", "#!/usr/bin/pypy3"}) {
    EXPECT_EQ(kind(line), Kind::python_script) << line;
  }
  for (const char* line : {"#!/bin/sh", "#!/home/python/bin/bash", "#!/usr/bin/env bash", "#!/usr/bin/env",
                           "#!", "# python", "#!/usr/bin/pythonish-shell"}) {
    EXPECT_EQ(kind(line), Kind::executable) << line;
  }
}

TEST_F(CommandTest, ReadsTheTextOfAScriptThatPathHas) {
  machine_.add("/usr/bin/tool", "#!/usr/bin/python3\n'tcp://h:1'\n", true);
  EXPECT_THAT(reading({"tool"}).addresses, ElementsAre("h:1'"));
  EXPECT_FALSE(command({"tool"}).is_python);
  machine_.add("/usr/bin/tool", "#!/bin/sh\nMASTER_ADDR=x\n", true);
  EXPECT_TRUE(reading({"tool"}).assigns_master);
}

// --- where injected arguments go ---

TEST_F(CommandTest, FindsTheScriptOfAPythonInterpreter) {
  auto split = [&](std::vector<std::string> words) {
    Command made = command(std::move(words));
    EXPECT_TRUE(made.program.takes_injected);
    return made.program.prefix;
  };
  EXPECT_THAT(split({"python", "x.py", "a"}), ElementsAre("python", "x.py"));
  EXPECT_THAT(split({"python3.11", "-u", "-W", "ignore", "-Xdev", "x.py"}),
              ElementsAre("python3.11", "-u", "-W", "ignore", "-Xdev", "x.py"));
  EXPECT_THAT(split({"/v/bin/python", "-um", "pkg", "a"}), ElementsAre("/v/bin/python", "-um", "pkg"));
  EXPECT_THAT(split({"python", "-mpkg", "a"}), ElementsAre("python", "-mpkg"));
  EXPECT_THAT(split({"python", "-c", "print(1)", "a"}), ElementsAre("python", "-c", "print(1)"));
  EXPECT_THAT(split({"python", "--check-hash-based-pycs", "never", "x.py", "a"}),
              ElementsAre("python", "--check-hash-based-pycs", "never", "x.py"));
  EXPECT_THAT(split({"python", "-", "a"}), ElementsAre("python", "-"));
}

TEST_F(CommandTest, GivesNoArgumentsToAnInterpreterWithoutAScript) {
  for (const auto& words : std::vector<std::vector<std::string>>{{"python"},
                                                                 {"python", "-m"},
                                                                 {"python", "-i"},
                                                                 {"bash"},
                                                                 {"bash", "-c", "true"},
                                                                 {"sh", "-s"},
                                                                 {"bash", "-ec", "x"}}) {
    Command made = command(words);
    EXPECT_FALSE(made.program.takes_injected);
    EXPECT_THAT(made.program.prefix, ElementsAre(words[0]));
    EXPECT_EQ(made.program.arguments.size(), words.size() - 1);
  }
}

TEST_F(CommandTest, FindsTheScriptOfAShell) {
  EXPECT_THAT(prefix({"bash", "start.sh", "a"}), ElementsAre("bash", "start.sh"));
  EXPECT_THAT(prefix({"sh", "-e", "start.sh", "a"}), ElementsAre("sh", "-e", "start.sh"));
  EXPECT_THAT(prefix({"bash", "-eo", "pipefail", "start.sh"}),
              ElementsAre("bash", "-eo", "pipefail", "start.sh"));
  EXPECT_THAT(prefix({"bash", "+o", "posix", "--", "start.sh", "a"}),
              ElementsAre("bash", "+o", "posix", "--", "start.sh"));
  EXPECT_THAT(prefix({"bash", "--rcfile", "f", "start.sh"}),
              ElementsAre("bash", "--rcfile", "f", "start.sh"));
}

TEST_F(CommandTest, GivesNoArgumentsToWrappers) {
  for (const char* wrapper :
       {"numactl", "nsys", "env", "/usr/bin/taskset", "gdb", "timeout", "conda", "apptainer"}) {
    Command made = command({wrapper, "x", "y.py"});
    EXPECT_FALSE(made.program.takes_injected) << wrapper;
    EXPECT_FALSE(made.is_python);
    EXPECT_FALSE(made.is_binary);
    EXPECT_THAT(made.program.prefix, ElementsAre(wrapper));
  }
}

TEST_F(CommandTest, TellsBinariesFromScriptsInterpretersAndWrappers) {
  machine_.add("/usr/bin/prog", kElf, true);
  machine_.add("/usr/bin/script", "#!/bin/sh\n", true);
  machine_.add("/usr/bin/python3", kElf, true);
  machine_.add("/usr/bin/bash", kElf, true);
  machine_.add("/usr/bin/env", kElf, true);
  EXPECT_TRUE(command({"prog"}).is_binary);
  EXPECT_TRUE(command({"/usr/bin/prog"}).is_binary);
  EXPECT_FALSE(command({"prog"}, {.no_python = true}).is_binary);
  for (const char* word : {"script", "python3", "bash", "env", "missing"})
    EXPECT_FALSE(command({word}).is_binary) << word;
}

// --- what texts say ---

TEST_F(CommandTest, ReadsTheScript) {
  machine_.add("dir/x.py", "parser.add_argument('--local-rank', type=int)\n");
  EXPECT_TRUE(reading({"dir/x.py"}).dash);
  EXPECT_FALSE(reading({"dir/x.py"}).underscore);
  EXPECT_TRUE(reading({"python3", "dir/x.py"}).dash);
  EXPECT_FALSE(reading({"missing.py"}).dash);
}

TEST_F(CommandTest, ReadsTheModulesOfItsOwnFolderThatTheScriptImports) {
  machine_.add("dir/x.py", "import os\nfrom args import parse\n");
  machine_.add("dir/args.py", "import deep.more\n");
  machine_.add("dir/deep/__init__.py", "from .other import y\n");
  machine_.add("dir/deep/more.py", "'--local_rank'\n");
  machine_.add("dir/deep/other.py", "'--local-rank'\n");
  machine_.add("args.py", "'tcp://elsewhere'\n");
  machine_.add("dir/stranger.py", "'tcp://stranger'\n");
  Reading read = reading({"dir/x.py"});
  EXPECT_TRUE(read.underscore);
  EXPECT_TRUE(read.dash);
  EXPECT_THAT(read.addresses, IsEmpty());
}

TEST_F(CommandTest, ReadsNoMoreThanAHundredFiles) {
  for (int i = 0; i < 200; ++i)
    machine_.add("m" + std::to_string(i) + ".py", "import m" + std::to_string(i + 1) + "\n");
  for (int i = 0; i < 200; ++i) {
    machine_.add("./m" + std::to_string(i) + ".py", machine_.files["m" + std::to_string(i) + ".py"]);
  }
  machine_.add("./m150.py", "'--local_rank'");
  EXPECT_FALSE(reading({"m0.py"}).underscore);
  machine_.add("./m50.py", "'--local_rank'");
  EXPECT_TRUE(reading({"m0.py"}).underscore);
}

TEST_F(CommandTest, EndsWhenModulesImportEachOther) {
  machine_.add("x.py", "import a\n");
  machine_.add("./a.py", "import b, a\n");
  machine_.add("./b.py", "import a\n'--local_rank'");
  EXPECT_TRUE(reading({"x.py"}).underscore);
}

TEST_F(CommandTest, ReadsTheFileOfAModule) {
  machine_.add("./pkg/mod.py", "'--local_rank'");
  EXPECT_TRUE(reading({"pkg.mod"}, {.module = true}).underscore);
  machine_.add("./app/__init__.py", "");
  machine_.add("./app/__main__.py", "'--local-rank'");
  EXPECT_TRUE(reading({"app"}, {.module = true}).dash);
  EXPECT_TRUE(reading({"python", "-m", "app"}).dash);
  machine_.add("/lib/far.py", "'--local_rank'");
  EXPECT_FALSE(reading({"far"}, {.module = true}).underscore);
  EXPECT_TRUE(reading({"far"}, {.module = true}, {{"PYTHONPATH", "/x:/lib"}}).underscore);
}

TEST_F(CommandTest, ReadsTheMainOfAFolder) {
  machine_.folders = {"./app"};
  machine_.add("./app/__main__.py", "import args");
  machine_.add("./app/args.py", "'--local_rank'");
  EXPECT_TRUE(reading({"./app"}).underscore);
}

TEST_F(CommandTest, ReadsWhatAWrapperSeemsToRun) {
  machine_.add("x.py", "'tcp://h:1'");
  EXPECT_THAT(reading({"numactl", "-N0", "python", "-u", "x.py"}).addresses, ElementsAre("h:1'"));
  EXPECT_THAT(reading({"torchprof", "x.py"}).addresses, IsEmpty());
  EXPECT_THAT(reading({"env", "A=1", "x.py"}).addresses, ElementsAre("h:1'"));
}

TEST_F(CommandTest, ReadsShellScripts) {
  machine_.add("start.sh", "export MASTER_ADDR=1.2.3.4\npython x.py --local_rank\n");
  Reading read = reading({"bash", "start.sh"});
  EXPECT_TRUE(read.assigns_master);
  EXPECT_FALSE(read.underscore);
}

Reading python(const std::string& text) {
  Reading reading;
  read_python(text, reading);
  return reading;
}

TEST(ReadPython, FindsTheOptionStringItself) {
  EXPECT_TRUE(python("'--local_rank'").underscore);
  EXPECT_TRUE(python("--local_rank=0").underscore);
  EXPECT_TRUE(python("x = \"--local_rank\"").underscore);
  EXPECT_FALSE(python("'--local_rank_count'").underscore);
  EXPECT_FALSE(python("'---local_rank'").underscore);
  EXPECT_FALSE(python("args.local_rank").underscore);
  EXPECT_FALSE(python("'--local-rank-x'").dash);
}

TEST(ReadPython, FindsAssignmentsOfTheMaster) {
  for (const char* text :
       {"os.environ['MASTER_ADDR'] = 'x'", "os.environ[\"MASTER_PORT\"]=str(p)",
        "environ[ 'MASTER_PORT' ]  = 1", "os.environ.setdefault('MASTER_ADDR', 'x')",
        "os.putenv(\"MASTER_PORT\", '1')", "os.environ.update({'MASTER_ADDR': a})",
        "os.environ.update(MASTER_ADDR=a)", "os.environ.update({\n  'RANK': r,\n  'MASTER_PORT': p})"}) {
    EXPECT_TRUE(python(text).assigns_master) << text;
  }
}

TEST(ReadPython, IsNotMisledByUsesOfTheMaster) {
  for (const char* text :
       {"os.environ['MASTER_ADDR']", "if os.environ['MASTER_ADDR'] == 'x':", "MASTER_ADDR = 'x'",
        "os.environ.get('MASTER_PORT')", "print('MASTER_ADDR', a)", "d['MASTER_ADDR'] = 1",
        "os.environ['MY_MASTER_ADDR'] = 1", "{'MASTER_ADDR': os.environ['MASTER_ADDR']}", "'MASTER_ADDR'"}) {
    EXPECT_FALSE(python(text).assigns_master) << text;
  }
}

TEST(ReadShell, FindsAssignmentsOfTheMaster) {
  auto assigns = [](const std::string& text) {
    Reading reading;
    read_shell(text, reading);
    return reading.assigns_master;
  };
  EXPECT_TRUE(assigns("MASTER_ADDR=x python y"));
  EXPECT_TRUE(assigns("a\n  export MASTER_PORT=1\n"));
  EXPECT_FALSE(assigns("echo $MASTER_ADDR"));
  EXPECT_FALSE(assigns("--master=$MASTER_PORT; [ x == MASTER_ADDR ]"));
  EXPECT_FALSE(assigns("OLD_MASTER_ADDR=1"));
}

TEST(ImportedModules, AreNamedWithTheirDots) {
  EXPECT_THAT(imported_modules("import a.b as c, d\nimport e;x\n"), ElementsAre("a.b", "d", "e"));
  EXPECT_THAT(imported_modules("from a import b, c as d\n"), ElementsAre("a", "a.b", "a.c"));
  EXPECT_THAT(imported_modules("from . import x\nfrom ..p import y\n"),
              ElementsAre(".", ".x", "..p", "..p.y"));
  EXPECT_THAT(imported_modules("from a import (\n  b,\n  c,\n)\nimport z\n"),
              ElementsAre("a", "a.b", "a.c", "z"));
  EXPECT_THAT(imported_modules("  import lazy\n# import no\nximport no\nfrom a import *\nfrom\nimport\n"),
              ElementsAre("lazy", "a"));
  EXPECT_THAT(imported_modules("from a import (b"), UnorderedElementsAre("a", "a.b"));
}

TEST(OpensOwnGroup, ComparesEachAddressWithTheJobsPort) {
  Reading none, other, own;
  other.addresses = {"10.0.0.1:23456', rank=0)"};
  own.addresses = {"{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}'"};
  EXPECT_FALSE(opens_own_group(none, {}, 29500));
  EXPECT_TRUE(opens_own_group(other, {}, 29500));
  EXPECT_FALSE(opens_own_group(other, {}, 23456));
  EXPECT_TRUE(opens_own_group(other, {}, 0));
  EXPECT_TRUE(opens_own_group(other, {}, 2345));
  EXPECT_FALSE(opens_own_group(own, {}, 29500));
  EXPECT_TRUE(opens_own_group(none, {"a", "--dist-url=tcp://h:1"}, 29500));
  EXPECT_FALSE(opens_own_group(none, {"--dist-url", "tcp://h:29500"}, 29500));
  EXPECT_TRUE(opens_own_group(none, {"tcp://host"}, 29500));
}

}  // namespace
}  // namespace dlaunch
