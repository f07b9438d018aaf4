#include <gmock/gmock.h>

#include "trainer/collective/init_url.hpp"
#include "trainer/collective/rendezvous.hpp"
#include "trainer/loop/allreduce.hpp"
#include "trainer/loop/options.hpp"

namespace trainer {
namespace {

using dlaunch::Environment;
using testing::ElementsAre;
using testing::HasSubstr;

std::string refused(const InitOptions& options, const Environment::Map& variables) {
  auto place = place_of(options, Environment(variables));
  if (place) return "accepted";
  EXPECT_EQ(place.error().code, Errc::usage);
  return place.error().text;
}

TEST(PlaceOf, NothingSaidIsOneProcess) {
  auto place = place_of({}, Environment(Environment::Map{}));
  ASSERT_TRUE(place);
  EXPECT_EQ(place->world_size, 1);
  EXPECT_EQ(place->process_num, 1);
}

TEST(PlaceOf, ReadsALaunchersVariablesAndFlagsWin) {
  Environment environment({{"RANK", "3"},
                           {"WORLD_SIZE", "4"},
                           {"LOCAL_RANK", "1"},
                           {"MASTER_ADDR", "h"},
                           {"MASTER_PORT", "29500"},
                           {"TORCHELASTIC_RESTART_COUNT", "2"},
                           {"TORCHELASTIC_RUN_ID", "job7"}});
  auto place = place_of({}, environment);
  ASSERT_TRUE(place) << place.error().text;
  EXPECT_EQ(place->rank, 3);
  EXPECT_EQ(place->world_size, 4);
  EXPECT_EQ(place->local_rank, 1);
  EXPECT_EQ(place->round, 2);
  EXPECT_EQ(place->run_id, "job7");
  EXPECT_EQ(place_of({.rank = 1, .local_rank = 0}, environment)->rank, 1);
}

TEST(PlaceOf, IndependentCopiesAreNoGroup) {
  auto place =
      place_of({.process_index = 1, .process_num = 3}, Environment({{"RANK", "0"}, {"WORLD_SIZE", "1"}}));
  ASSERT_TRUE(place);
  EXPECT_EQ(place->world_size, 1);
  EXPECT_EQ(place->process_index, 1);
  EXPECT_EQ(place->process_num, 3);
}

TEST(PlaceOf, ContradictionsAndNoNumbersAreNamed) {
  EXPECT_THAT(refused({}, {{"RANK", "0"}}), HasSubstr("WORLD_SIZE"));
  EXPECT_THAT(refused({}, {{"WORLD_SIZE", "2"}}), HasSubstr("RANK"));
  EXPECT_THAT(refused({}, {{"RANK", "1x"}, {"WORLD_SIZE", "2"}}), HasSubstr("'1x'"));
  EXPECT_THAT(refused({.rank = 2, .world_size = 2}, {}), HasSubstr("2"));
  EXPECT_THAT(refused({.rank = -1, .world_size = 2}, {}), HasSubstr("-1"));
  EXPECT_THAT(refused({.rank = 0, .world_size = 0}, {}), HasSubstr("0"));
  EXPECT_THAT(refused({.rank = 0, .world_size = 2}, {}), HasSubstr("MASTER_ADDR"));
  EXPECT_THAT(refused({.rank = 0, .world_size = 2}, {{"MASTER_ADDR", "h"}, {"MASTER_PORT", "0"}}),
              HasSubstr("MASTER_PORT"));
  EXPECT_THAT(refused({.process_index = 3, .process_num = 3}, {}), HasSubstr("3"));
  EXPECT_THAT(refused({.process_index = 3}, {}), HasSubstr("--process_num"));
  EXPECT_THAT(refused({.rank = 0, .world_size = 2, .process_index = 0, .process_num = 3}, {}),
              HasSubstr("independent copies"));
}

TEST(InitUrl, IsReadWithItsParts) {
  auto tcp = parse_init_url("tcp://[::1]:29500");
  ASSERT_TRUE(tcp);
  EXPECT_EQ(tcp->host, "::1");
  EXPECT_EQ(tcp->port, 29500);
  EXPECT_EQ(parse_init_url("tcp://node0:1")->host, "node0");
  EXPECT_EQ(parse_init_url("file:///tmp/x y")->path, "/tmp/x y");
  EXPECT_EQ(parse_init_url("env://")->kind, InitUrl::Kind::environment);
  for (const char* bad : {"", "tcp://", "tcp://h", "tcp://h:0", "tcp://h:99999", "tcp://:1", "tcp://[::1:5",
                          "file://", "ftp://x", "h:1"}) {
    auto url = parse_init_url(bad);
    ASSERT_FALSE(url) << bad;
    EXPECT_EQ(url.error().code, Errc::usage);
    EXPECT_THAT(url.error().text, HasSubstr(bad));
  }
}

TEST(ParseSizes, TakesRangesAndLists) {
  EXPECT_THAT(*parse_sizes("1K:8K"), ElementsAre(1024u, 2048u, 4096u, 8192u));
  EXPECT_THAT(*parse_sizes("3,4k,1M"), ElementsAre(4u, 4096u, 1u << 20));  // whole floats, at least one
  for (const char* bad :
       {"", "x", "1K:", ":1K", "4K:1K", "0", "-1", "1T", "1,,2", "99999999999G", "1K:2K:4K"}) {
    auto sizes = parse_sizes(bad);
    ASSERT_FALSE(sizes) << bad;
    EXPECT_EQ(sizes.error().code, Errc::usage);
  }
}

Result<Parsed> parse(std::vector<const char*> words) {
  words.insert(words.begin(), "train");
  return parse_options(int(words.size()), words.data());
}

TEST(TrainOptions, TakeBothSpellingsAndTheDemosFlags) {
  auto parsed = parse({"--batch_size",
                       "8",
                       "--test-batch-size=9",
                       "--epochs",
                       "3",
                       "--lr",
                       "0.1",
                       "--momentum",
                       "0.9",
                       "--no-cuda",
                       "--seed",
                       "5",
                       "--log-interval",
                       "7",
                       "--save-model",
                       "--backend",
                       "gloo",
                       "--init_method",
                       "env://",
                       "--world_size",
                       "1",
                       "--rank=0",
                       "--local_rank",
                       "0",
                       "--hidden",
                       "7,8,9"});
  ASSERT_TRUE(parsed) << parsed.error().text;
  const auto& options = parsed->options;
  EXPECT_EQ(options.batch_size, 8);
  EXPECT_EQ(options.test_batch_size, 9);
  EXPECT_EQ(options.log_every, 7);
  EXPECT_TRUE(options.no_cuda && options.save_model);
  EXPECT_THAT(options.hidden, ElementsAre(7, 8, 9));
  EXPECT_EQ(options.init.local_rank, 0);
}

TEST(TrainOptions, TheLastOfTwoCounts) {
  EXPECT_EQ(parse({"--steps", "1", "--steps", "2"})->options.steps, 2);
}

TEST(TrainOptions, PackTakesSeveralInputs) {
  auto parsed = parse({"pack", "a", "b", "-o", "c"});
  ASSERT_TRUE(parsed) << parsed.error().text;
  EXPECT_THAT(parsed->options.pack_inputs, ElementsAre("a", "b"));
  EXPECT_EQ(parsed->options.pack_output, "c");
}

}  // namespace
}  // namespace trainer
