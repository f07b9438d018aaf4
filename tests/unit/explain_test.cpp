#include "launcher/explain.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "fake_machine.hpp"

namespace dlaunch {
namespace {

using testing::HasSubstr;
using testing::Not;

struct Explain : testing::Test {
  Settings settled(std::map<std::string, std::string> flags,
                   std::vector<std::string> program = {"x.py", "it's", "${local_rank}"}) {
    auto settings =
        settle(Typed{std::move(flags), std::move(program), "dlaunch"}, environment, machine.view());
    EXPECT_TRUE(settings) << (settings ? "" : settings.error().text);
    return settings ? *settings : Settings{};
  }

  FakeMachine machine;
  Environment environment{{{"PATH", "/usr/bin"},
                           {"HOME", "/root"},
                           {"DLAUNCH_TOKEN", "secret"},
                           {"PET_ROLE", "actor"},
                           {"RANK", "5"}}};
};

TEST_F(Explain, ShowsEverySettingWithItsOrigin) {
  std::string text = explain(settled({{"nproc_per_node", "2"}}), environment);
  EXPECT_THAT(text, HasSubstr("  nproc_per_node      2                   --nproc_per_node\n"));
  EXPECT_THAT(text, HasSubstr("  role                actor               PET_ROLE\n"));
  EXPECT_THAT(text, HasSubstr("  nnodes              1                   default\n"));
  EXPECT_THAT(text, HasSubstr("  master_port         any free port       default\n"));
}

TEST_F(Explain, ShowsEachWorkersCommandAsAShellWouldTakeIt) {
  std::string text = explain(settled({{"nproc_per_node", "2"}}), environment);
  EXPECT_THAT(text, HasSubstr("rank 0 of 2 (node 0, local 0):\n  python3 -u x.py 'it'\\''s' 0\n"));
  EXPECT_THAT(text, HasSubstr("rank 1 of 2 (node 0, local 1):\n  python3 -u x.py 'it'\\''s' 1\n"));
}

TEST_F(Explain, ShowsOnlyVariablesThatDlaunchSetsChangesOrRemoves) {
  std::string text = explain(settled({}), environment);
  EXPECT_THAT(text, HasSubstr("    RANK=0\n"));
  EXPECT_THAT(text, HasSubstr("    TORCHELASTIC_ERROR_FILE=''\n"));
  EXPECT_THAT(text, HasSubstr("    DLAUNCH_TOKEN is removed\n"));
  EXPECT_THAT(text, Not(HasSubstr("HOME")));
  EXPECT_THAT(text, Not(HasSubstr("secret")));
}

TEST_F(Explain, TakesAllNodesToBeLikeThisOne) {
  std::string text =
      explain(settled({{"nnodes", "2"}, {"nproc_per_node", "2"}, {"node_rank", "1"}, {"master_addr", "a"}}),
              environment);
  EXPECT_THAT(text, HasSubstr("assumed: all nodes are like this one\n"));
  EXPECT_THAT(text, HasSubstr("rank 2 of 4 (node 1, local 0):\n"));
  EXPECT_THAT(text, HasSubstr("    MASTER_ADDR=a\n"));
  EXPECT_THAT(text, HasSubstr("    MASTER_PORT=29500\n"));
}

TEST_F(Explain, SaysWhatWillBeKnownLaterOnly) {
  Settings one = settled({});
  EXPECT_THAT(explain(one, environment), HasSubstr("assumed: port 29500, any free one will be taken\n"));
  EXPECT_EQ(assumed_round(one.job).master_port, 29500);
  Settings c10d = settled({{"nnodes", "2"}, {"rdzv_backend", "c10d"}, {"rdzv_endpoint", "a:1"}});
  EXPECT_THAT(explain(c10d, environment), HasSubstr("assumed: this is node 0, it will be assigned\n"));
  EXPECT_THAT(explain(c10d, environment), Not(HasSubstr("any free")));
}

TEST_F(Explain, CallsCopiesCopies) {
  std::string text = explain(settled({{"process_num", "2"}}), environment);
  EXPECT_THAT(text,
              HasSubstr("copy 1 of 2:\n  python3 -u x.py --process_index 1 --process_num 2 'it'\\''s' 1\n"));
  EXPECT_THAT(text, Not(HasSubstr("MASTER_PORT")));
  EXPECT_THAT(text, Not(HasSubstr("assumed")));
  EXPECT_THAT(explain(settled({{"process_num", "3"}, {"process_index", "2"}}), environment),
              HasSubstr("copy 2 of 3:\n"));
}

TEST_F(Explain, PutsAProgramOfABlankInQuotes) {
  EXPECT_THAT(explain(settled({}, {" "}), environment), HasSubstr("\n  ' '\n"));
}

TEST_F(Explain, SaysTheSameToPrograms) {
  Settings settings = settled({{"nproc_per_node", "2"}, {"numa_binding", "node"}});
  auto document = nlohmann::json::parse(explain_json(settings, environment));
  EXPECT_EQ(document["settings"]["nproc_per_node"]["value"], "2");
  EXPECT_EQ(document["settings"]["nproc_per_node"]["origin"], "--nproc_per_node");
  EXPECT_EQ(document["warnings"].size(), 1u);
  ASSERT_EQ(document["workers"].size(), 2u);
  EXPECT_EQ(document["workers"][1]["argv"], (std::vector<std::string>{"python3", "-u", "x.py", "it's", "1"}));
  EXPECT_EQ(document["workers"][1]["set"]["RANK"], "1");
  EXPECT_EQ(document["workers"][1]["removed"], std::vector<std::string>{"DLAUNCH_TOKEN"});
}

TEST_F(Explain, SurvivesBytesThatAreNoText) {
  Settings settings = settled({}, {"x.py", "\xff\xfe"});
  EXPECT_FALSE(explain_json(settings, environment).empty());
}

}  // namespace
}  // namespace dlaunch
