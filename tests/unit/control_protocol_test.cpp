#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "dlaunch/control/protocol.hpp"

namespace dlaunch::control {
namespace {

std::string frame_of(const std::string& body) {
  std::string frame(4, '\0');
  for (int i = 0; i < 4; ++i) frame[i] = static_cast<char>(body.size() >> (8 * i));
  return frame + body;
}

nlohmann::json json_of(const Message& message) { return nlohmann::json::parse(encode(message).substr(4)); }

Result<std::optional<Message>> take(std::string_view in) { return take_message(in); }

std::vector<Message> one_of_each() {
  Layout layout;
  layout.nodes = {{"gpu-a", 8, "trainer"}, {"gpu-b", 8, "trainer"}, {"cpu-a", 2, "reader"}};
  return {
      Hello{.protocol = 1,
            .version = "0.1.0",
            .session = "s7",
            .run_id = "run",
            .node_rank = 3,
            .nnodes = 4,
            .nproc = 8,
            .role = "trainer",
            .host = "gpu-d",
            .addresses = {"10.0.0.4", "fe80::1"},
            .pid = 4242},
      Spawned{2},
      WorkerExited{.round = 1,
                   .rank = 5,
                   .local = 1,
                   .pid = 77,
                   .status = {.code = 0, .signal = 11, .core = true},
                   .age_us = 1500,
                   .evidence = true,
                   .stopped = true,
                   .lived_us = 12'400'000,
                   .exec_error = "no such file",
                   .message = "RuntimeError: x",
                   .last_words = {"first", "", "last"},
                   .log = "/tmp/stderr.log"},
      Stopped{.round = 1, .stuck = {"rank 3 (pid 77, state D)"}},
      Done{1},
      Signalled{15},
      Pong{~std::uint64_t{0}},
      Bye{"told to"},
      Welcome{3},
      Refused{.reason = "full", .retry = true},
      Waiting{.missing = {1, 2}, .here = {"0 gpu-a"}, .left_ms = 890'000},
      Start{.round = 2, .layout = layout, .master_port = 29500, .store = StoreHost::worker},
      Stop{.round = 2, .signal = 2, .grace_ms = 1000, .reason = "rank 5 exited with code 3"},
      Finish{.exit_code = 3, .signal = 15, .report = "dlaunch: job failed: …\n"},
      Ping{7},
  };
}

TEST(ControlProtocol, EveryMessageSurvivesTheRoundTrip) {
  auto messages = one_of_each();
  ASSERT_EQ(messages.size(), std::variant_size_v<Message>);
  for (std::size_t i = 0; i < messages.size(); ++i) {
    std::string frame = encode(messages[i]);
    std::string_view in = frame;
    auto back = take_message(in);
    ASSERT_TRUE(back && *back) << frame;
    EXPECT_TRUE(in.empty());
    EXPECT_EQ((*back)->index(), i);
    EXPECT_EQ(encode(**back), frame);
  }
}

TEST(ControlProtocol, MembersArriveAsTheyWereSent) {
  auto messages = one_of_each();
  auto hello = std::get<Hello>(**take(encode(messages[0])));
  EXPECT_EQ(hello.node_rank, 3);
  EXPECT_EQ(hello.addresses, (std::vector<std::string>{"10.0.0.4", "fe80::1"}));
  auto exited = std::get<WorkerExited>(**take(encode(messages[2])));
  EXPECT_EQ(exited.status, (ExitStatus{.signal = 11, .core = true}));
  EXPECT_EQ(exited.lived_us, 12'400'000);
  EXPECT_TRUE(exited.stopped);
  auto start = std::get<Start>(**take(encode(messages[11])));
  ASSERT_EQ(start.layout.nodes.size(), 3u);
  EXPECT_EQ(start.layout.nodes[1].host, "gpu-b");
  EXPECT_EQ(start.layout.nodes[2].role, "reader");
  EXPECT_EQ(start.layout.world_size(), 18);
  EXPECT_EQ(start.store, StoreHost::worker);
  EXPECT_EQ(std::get<Pong>(**take(encode(messages[6]))).id, ~std::uint64_t{0});
}

TEST(ControlProtocol, AFrameCutAtAnyByteAsksForMore) {
  for (const auto& message : one_of_each()) {
    std::string frame = encode(message);
    for (std::size_t cut = 0; cut < frame.size(); ++cut) {
      std::string_view in(frame.data(), cut);
      auto taken = take_message(in);
      ASSERT_TRUE(taken) << cut;
      EXPECT_FALSE(*taken) << cut;
      EXPECT_EQ(in.size(), cut);
    }
  }
}

TEST(ControlProtocol, FramesAreTakenOneByOne) {
  std::string two = encode(Ping{1}) + encode(Ping{2});
  std::string_view in = two;
  EXPECT_EQ(std::get<Ping>(**take_message(in)).id, 1u);
  EXPECT_EQ(std::get<Ping>(**take_message(in)).id, 2u);
  EXPECT_TRUE(in.empty());
}

TEST(ControlProtocol, ALengthOverTheLimitIsRefusedFromItsFourBytesAlone) {
  auto taken = take(std::string("\x01\x00\x10\x00", 4));
  ASSERT_FALSE(taken);
  EXPECT_EQ(taken.error().code, Errc::bad_frame);
  EXPECT_FALSE(take("\xff\xff\xff\xff"));
  auto longest = take(std::string("\x00\x00\x10\x00", 4));
  ASSERT_TRUE(longest);
  EXPECT_FALSE(*longest);
}

TEST(ControlProtocol, BytesThatAreNotUtf8AreReplaced) {
  WorkerExited exited;
  exited.last_words = {"caf\xe9", std::string("nul\0byte", 8), "\x1b[31m"};
  auto back = take(encode(exited));
  ASSERT_TRUE(back && *back);
  auto words = std::get<WorkerExited>(**back).last_words;
  EXPECT_EQ(words[0], "caf\xef\xbf\xbd");
  EXPECT_EQ(words[1], std::string("nul\0byte", 8));
  EXPECT_EQ(words[2], "\x1b[31m");
}

TEST(ControlProtocol, LastWordsAreCutUntilTheyFitAndTheNewestStay) {
  WorkerExited exited;
  exited.rank = 9;
  exited.last_words.assign(4096, std::string(1024, '\x01'));
  exited.last_words.back() = "the end";
  std::string frame = encode(exited);
  EXPECT_LE(frame.size(), kMaxFrame + 4);
  auto back = std::get<WorkerExited>(**take(frame));
  EXPECT_EQ(back.rank, 9);
  ASSERT_FALSE(back.last_words.empty());
  EXPECT_EQ(back.last_words.back(), "the end");
}

TEST(ControlProtocol, EveryMessageWithLongTextsFitsIntoAFrame) {
  std::string lots(3 << 20, 'x');
  Waiting waiting;
  waiting.missing.assign(65'536, 65'535);
  waiting.here.assign(5000, std::string(1000, 'h'));
  std::vector<Message> all = {Hello{.host = lots, .addresses = std::vector<std::string>(5000, "a")},
                              Bye{lots},
                              Refused{.reason = lots},
                              Stop{.reason = lots},
                              Finish{.report = lots},
                              Stopped{.stuck = std::vector<std::string>(5000, lots.substr(0, 1000))},
                              waiting,
                              WorkerExited{.message = lots, .last_words = {lots}}};
  for (const auto& message : all) {
    std::string frame = encode(message);
    EXPECT_LE(frame.size(), kMaxFrame + 4);
    auto back = take(frame);
    ASSERT_TRUE(back && *back) << frame.substr(4, 40);
  }
}

TEST(ControlProtocol, ALayoutOfTheGreatestSizeFits) {
  Start start;
  start.layout.nodes.assign(kMaxNodes, NodePlace{std::string(40, 'h'), 8, "default"});
  std::string frame = encode(start);
  EXPECT_LE(frame.size(), kMaxFrame + 4);
  auto back = take(frame);
  ASSERT_TRUE(back && *back);
  EXPECT_EQ(std::get<Start>(**back).layout.world_size(), kMaxNodes * 8);
}

TEST(ControlProtocol, MissingMembersTakeTheirDefaultsAndUnknownOnesAreIgnored) {
  auto back = take(frame_of(R"({"type":"Stop","colour":"red","more":{"a":[1]}})"));
  ASSERT_TRUE(back && *back);
  auto stop = std::get<Stop>(**back);
  EXPECT_EQ(stop.signal, 15);
  EXPECT_EQ(stop.grace_ms, 30'000);
}

TEST(ControlProtocol, EachMemberOfAWrongTypeBreaksTheFrame) {
  for (const auto& message : one_of_each()) {
    auto good = json_of(message);
    for (const auto& [name, value] : good.items()) {
      for (const auto& wrong : {nlohmann::json(nullptr), nlohmann::json(1.5), nlohmann::json({{"a", 1}}),
                                nlohmann::json::array({nlohmann::json::array()})}) {
        if (wrong.type() == value.type() && name != "status") continue;
        auto bad = good;
        bad[name] = wrong;
        if (name == "status" && wrong.is_object()) bad[name] = {{"code", "x"}};
        auto taken = take(frame_of(bad.dump()));
        ASSERT_FALSE(taken) << bad.dump();
        EXPECT_EQ(taken.error().code, Errc::bad_frame);
      }
    }
  }
}

TEST(ControlProtocol, NumbersOutOfTheirRangeBreakTheFrame) {
  for (const char* body : {
           R"({"type":"Hello","node_rank":-2})",
           R"({"type":"Hello","node_rank":65536})",
           R"({"type":"Hello","nproc":0})",
           R"({"type":"Hello","nnodes":99999999999999999999})",
           R"({"type":"Spawned","round":-1})",
           R"({"type":"Spawned","round":2147483648})",
           R"({"type":"WorkerExited","status":{"code":256}})",
           R"({"type":"WorkerExited","status":{"signal":65}})",
           R"({"type":"WorkerExited","age_us":-1})",
           R"({"type":"Ping","id":-1})",
           R"({"type":"Start","master_port":65536})",
           R"({"type":"Start","store":"moon"})",
           R"({"type":"Start","layout":[{"nproc":0,"hosts":["a"]}]})",
           R"({"type":"Start","layout":[{"nproc":1}]})",
           R"({"type":"Start","layout":[{"nproc":1,"hosts":[1]}]})",
           R"({"type":"Start","layout":["a"]})",
           R"({"type":"Stop","signal":0})",
           R"({"type":"Finish","exit_code":300})",
       }) {
    EXPECT_FALSE(take(frame_of(body))) << body;
  }
}

TEST(ControlProtocol, ListsAreBounded) {
  nlohmann::json stopped = {{"type", "Stopped"}, {"stuck", std::vector<std::string>(4096, "")}};
  EXPECT_TRUE(take(frame_of(stopped.dump())));
  stopped["stuck"].push_back("");
  EXPECT_FALSE(take(frame_of(stopped.dump())));

  std::vector<std::string> hosts(kMaxNodes, "");
  nlohmann::json start = {{"type", "Start"}, {"layout", {{{"nproc", 256}, {"hosts", hosts}}}}};
  EXPECT_TRUE(take(frame_of(start.dump())));
  start["layout"][0]["nproc"] = 257;
  EXPECT_FALSE(take(frame_of(start.dump()))) << "more workers than a job can have";
  start["layout"] = {{{"nproc", 1}, {"hosts", hosts}}, {{"nproc", 1}, {"hosts", {"one more"}}}};
  EXPECT_FALSE(take(frame_of(start.dump())));
}

TEST(ControlProtocol, WhatIsNoMessageIsABrokenFrame) {
  for (const char* body :
       {"", "{", "[]", "7", "null", "{}", R"({"type":7})", R"({"type":"Hullo"})", R"({"type":"hello"})",
        "{\"type\":\"Bye\",\"reason\":\"\xff\"}", R"({"type":"Bye"} x)"}) {
    auto taken = take(frame_of(body));
    ASSERT_FALSE(taken) << body;
    EXPECT_EQ(taken.error().code, Errc::bad_frame);
  }
  EXPECT_FALSE(take(frame_of(std::string(1 << 20, '['))));
  std::string deep = R"({"type":"Bye","x":)" + std::string(200'000, '[') + std::string(200'000, ']') + "}";
  EXPECT_TRUE(take(frame_of(deep)));
}

}  // namespace
}  // namespace dlaunch::control
