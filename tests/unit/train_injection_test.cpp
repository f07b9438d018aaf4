#include <gmock/gmock.h>

#include "trainer/loop/injection.hpp"

namespace trainer {
namespace {

using How = Injection::How;
using testing::HasSubstr;

std::string fault(const std::string& text) {
  auto injection = parse_injection(text);
  if (injection) return "no fault";
  EXPECT_EQ(injection.error().code, dlaunch::Errc::usage);
  EXPECT_THAT(injection.error().hint, HasSubstr("rank=R,step=S,how="));
  return injection.error().text;
}

TEST(Injection, IsReadInAnyOrder) {
  auto injection = parse_injection("how=exit:37,step=5000000000,rank=3");
  ASSERT_TRUE(injection) << injection.error().text;
  EXPECT_EQ(injection->rank, 3);
  EXPECT_EQ(injection->step, 5'000'000'000);
  EXPECT_EQ(injection->how, How::exit);
  EXPECT_EQ(injection->number, 37);
  EXPECT_EQ(injection->round, 0);
}

TEST(Injection, KnowsEveryFault) {
  for (auto [text, how] : {std::pair{"kill", How::kill},
                           {"hang", How::hang},
                           {"nan", How::nan},
                           {"flip", How::flip},
                           {"slow:20", How::slow},
                           {"exit:0", How::exit}}) {
    auto injection = parse_injection("rank=0,step=0,how=" + std::string(text));
    ASSERT_TRUE(injection) << text;
    EXPECT_EQ(injection->how, how);
  }
}

TEST(Injection, NamesEveryMistake) {
  EXPECT_EQ(fault(""), "rank is missing");
  EXPECT_EQ(fault("step=1,how=kill"), "rank is missing");
  EXPECT_EQ(fault("rank=1,how=kill"), "step is missing");
  EXPECT_EQ(fault("rank=1,step=1"), "how is missing");
  EXPECT_EQ(fault("rank=1,step=1,how=kill,when=now"),
            "unknown key 'when', not one of rank, step, how and round");
  EXPECT_EQ(fault("rank=1,step=1,how=kill,now"), "'now' is no key=value");
  EXPECT_EQ(fault("rank=1,,how=kill"), "'' is no key=value");
  EXPECT_EQ(fault("rank=1,step=1,how=kill,"), "a comma with nothing behind it");
  EXPECT_EQ(fault("rank=1,rank=2,step=1,how=kill"), "rank is given twice");
  EXPECT_EQ(fault("rank=one,step=1,how=kill"), "rank needs a whole number from 0 to 2147483647, got 'one'");
  EXPECT_THAT(fault("rank=-1,step=1,how=kill"), HasSubstr("got '-1'"));
  EXPECT_THAT(fault("rank=,step=1,how=kill"), HasSubstr("rank needs a whole number"));
  EXPECT_THAT(fault("rank=2147483648,step=1,how=kill"), HasSubstr("got '2147483648'"));
  EXPECT_THAT(fault("rank=1,step=1.5,how=kill"), HasSubstr("step needs a whole number"));
  EXPECT_THAT(fault("rank=1,step=1,how=kill,round=x"), HasSubstr("round needs a whole number"));
  EXPECT_THAT(fault("rank=1,step=1,how=stop"), HasSubstr("how is 'stop', not one of exit:N, kill"));
  EXPECT_EQ(fault("rank=1,step=1,how=exit"), "how=exit needs a code, as exit:7");
  EXPECT_EQ(fault("rank=1,step=1,how=exit:256"), "how=exit needs a whole number from 0 to 255, got '256'");
  EXPECT_THAT(fault("rank=1,step=1,how=slow:fast"), HasSubstr("got 'fast'"));
  EXPECT_EQ(fault("rank=1,step=1,how=kill:9"), "how=kill takes no number, got 'kill:9'");
}

TEST(Injection, AppliesToOneRankStepAndRound) {
  auto kill = *parse_injection("rank=1,step=5,how=kill");
  EXPECT_TRUE(applies(kill, 1, 5, 0));
  EXPECT_FALSE(applies(kill, 0, 5, 0));
  EXPECT_FALSE(applies(kill, 1, 4, 0));
  EXPECT_FALSE(applies(kill, 1, 6, 0));
  EXPECT_FALSE(applies(kill, 1, 5, 1));  // or a restarted job would fail for ever
}

TEST(Injection, AppliesToTheRoundAskedForOrToAll) {
  auto second = *parse_injection("rank=1,step=5,how=kill,round=2");
  EXPECT_FALSE(applies(second, 1, 5, 0));
  EXPECT_TRUE(applies(second, 1, 5, 2));
  auto all = *parse_injection("rank=1,step=5,how=kill,round=all");
  for (int round = 0; round < 3; ++round) EXPECT_TRUE(applies(all, 1, 5, round));
}

TEST(Injection, ASlowRankStaysSlow) {
  auto slow = *parse_injection("rank=1,step=5,how=slow:1");
  EXPECT_FALSE(applies(slow, 1, 4, 0));
  EXPECT_TRUE(applies(slow, 1, 5, 0));
  EXPECT_TRUE(applies(slow, 1, 500, 0));
}

}  // namespace
}  // namespace trainer
