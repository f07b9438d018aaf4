#include "dlaunch/store/table.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <limits>

namespace dlaunch::store {
namespace {

// A table with sessions 0 to 9 open, asked in short words; answers are strings.
class Asked {
 public:
  explicit Asked(TableLimits limits = {}) : table(limits) {
    for (SessionId id = 0; id < 10; ++id) table.open(id);
  }

  // What came for session `from` itself; what came for the others is kept in `others`.
  std::string ask(SessionId from, Request request) {
    std::vector<Reply> replies;
    refusal = table.apply(from, request, replies);
    std::string own;
    others.clear();
    for (const Reply& reply : replies) {
      std::string bytes(reply.head_view());
      bytes += reply.body.view();
      if (reply.to == from) {
        own += bytes;
      } else {
        others.emplace_back(reply.to, bytes);
      }
    }
    return own;
  }

  std::string set(SessionId from, std::string_view key, std::string_view value) {
    Request request;
    request.op = Op::set;
    request.key = key;
    request.value = value;
    return ask(from, request);
  }
  std::string add(SessionId from, std::string_view key, std::int64_t delta) {
    Request request;
    request.op = Op::add;
    request.key = key;
    request.number = delta;
    return ask(from, request);
  }
  std::string on_key(SessionId from, Op op, std::string_view key, std::string_view value = {}) {
    Request request;
    request.op = op;
    request.key = key;
    request.value = value;
    return ask(from, request);
  }
  std::string on_keys(SessionId from, Op op, std::vector<std::string_view> keys) {
    Request request;
    request.op = op;
    request.many = keys;
    return ask(from, request);
  }
  std::string get(std::string_view key) { return on_key(9, Op::get, key).substr(8); }

  using Others = std::vector<std::pair<SessionId, std::string>>;
  Table table;
  std::string refusal;
  Others others;
};

const std::string kStopWaiting(1, '\0');
const std::string kCanceled(1, '\1');

std::string number(std::int64_t n) { return std::string(reinterpret_cast<const char*>(&n), 8); }

// --- ADD ---

TEST(StoreTable, AddReadsNumbersAsStrtollDoes) {
  Asked store;
  store.set(0, "k", " \t+12abc");
  EXPECT_EQ(store.add(0, "k", 1), number(13));
  EXPECT_EQ(store.get("k"), "13");
  for (const char* text : {"", "abc", "+-5", "- 5", "9223372036854775808"}) {
    store.set(0, "k", text);
    EXPECT_EQ(store.add(0, "k", 1), "");
    EXPECT_EQ(store.refusal, "the value is no number");
    EXPECT_EQ(store.get("k"), text) << "the value stays";
  }
}

TEST(StoreTable, AddWrapsAround) {
  Asked store;
  store.set(0, "k", "9223372036854775807");
  EXPECT_EQ(store.add(0, "k", 1), number(std::numeric_limits<std::int64_t>::min()));
  EXPECT_EQ(store.get("k"), "-9223372036854775808");
}

// --- waiting ---

TEST(StoreTable, ARequestDropsTheWaitThatItsClientHasGivenUp) {
  Asked store;
  store.on_keys(0, Op::wait, {"late"});
  EXPECT_EQ(store.add(0, "count", 1), number(1));
  EXPECT_EQ(store.table.waits(), 0u);
  store.set(1, "late", "v");
  EXPECT_TRUE(store.others.empty());
}

TEST(StoreTable, WithoutThatAStrayByteShiftsTheStreamOfAClientThatTimedOut) {
  Asked store({.drop_stale_waits = false});
  store.on_keys(0, Op::wait, {"late"});
  EXPECT_EQ(store.add(0, "count", 1), number(1));
  store.set(1, "late", "v");
  EXPECT_EQ(store.others, (Asked::Others{{0, kStopWaiting}}));
}

TEST(StoreTable, AWaiterThatIsGoneIsNotAnswered) {
  Asked store;
  store.on_keys(0, Op::wait, {"a", "b", "a"});
  store.on_keys(1, Op::wait, {"a"});
  store.on_keys(2, Op::wait, {"b", "a"});
  store.table.close(1);
  store.set(3, "a", "v");
  EXPECT_TRUE(store.others.empty());
  store.table.close(0);
  store.set(3, "b", "v");
  EXPECT_EQ(store.others, (Asked::Others{{2, kStopWaiting}}));
  EXPECT_EQ(store.table.waits(), 0u);
}

TEST(StoreTable, WaitersAreWokenInOrderOfArrival) {
  Asked store;
  for (const SessionId id : {5, 3, 8}) store.on_keys(id, Op::wait, {"k"});
  store.set(0, "k", "v");
  EXPECT_EQ(store.others, (Asked::Others{{5, kStopWaiting}, {3, kStopWaiting}, {8, kStopWaiting}}));
}

TEST(StoreTable, CompareSetWakesOnlyIfTheKeyExistsAfterwards) {
  Asked store;
  store.on_keys(0, Op::wait, {"k"});
  Request request;
  request.op = Op::compare_set;
  request.key = "k";
  request.value = "expected";
  request.desired = "desired";
  EXPECT_EQ(store.ask(1, request).substr(8), "expected");
  EXPECT_TRUE(store.others.empty());
  request.value = "";
  EXPECT_EQ(store.ask(1, request).substr(8), "desired");
  EXPECT_EQ(store.others, (Asked::Others{{0, kStopWaiting}}));
}

TEST(StoreTable, APushServesOneWaiterAndCountsOffThoseWhoWaitForMore) {
  Asked store;
  store.on_keys(0, Op::wait, {"q", "k"});
  store.on_keys(1, Op::wait, {"q"});
  store.on_keys(2, Op::wait, {"q"});
  store.on_key(3, Op::queue_push, "q", "1");
  EXPECT_EQ(store.others, (Asked::Others{{1, kStopWaiting}}));
  store.on_key(3, Op::queue_push, "q", "2");
  EXPECT_EQ(store.others, (Asked::Others{{2, kStopWaiting}}));
  store.set(3, "k", "v");
  EXPECT_EQ(store.others, (Asked::Others{{0, kStopWaiting}}));
}

TEST(StoreTable, WaitingForAQueueThatHoldsSomethingAndAMissingKeyIsWaitingForTheKey) {
  Asked store;
  store.on_key(3, Op::queue_push, "q", "1");
  EXPECT_EQ(store.on_keys(0, Op::wait, {"q", "k"}), "");
  store.set(3, "k", "v");
  EXPECT_EQ(store.others, (Asked::Others{{0, kStopWaiting}}));
}

TEST(StoreTable, CancelWaitIsAlwaysAnswered) {
  Asked store;
  EXPECT_EQ(store.on_key(0, Op::cancel_wait, {}), kCanceled);
  store.on_keys(0, Op::wait, {"k"});
  EXPECT_EQ(store.on_key(0, Op::cancel_wait, {}), kCanceled);
  store.set(1, "k", "v");
  EXPECT_TRUE(store.others.empty());
}

TEST(StoreTable, WaitsThatAreCancelledAgainAndAgainLeaveNothingBehind) {
  Asked store;
  const std::size_t before = store.table.total_bytes();
  store.on_keys(1, Op::wait, {"never"});
  for (int i = 0; i < 1000; ++i) {
    store.on_keys(0, Op::wait, {"never", "ever"});
    store.on_key(0, Op::cancel_wait, {});
  }
  EXPECT_EQ(store.table.waits(), 1u);
  store.table.close(1);
  EXPECT_EQ(store.table.total_bytes(), before);
}

// --- the cap ---

TEST(StoreTable, KeepsCountOfWhatItHolds) {
  Asked store;
  store.set(0, "key", "value");
  store.set(0, "key", "longer value");
  store.on_key(0, Op::append, "key", "!");
  store.add(0, "count", 12345);
  store.add(0, "count", -12345);
  store.on_key(0, Op::queue_push, "q", "element");
  store.on_key(0, Op::watch_key, "key");
  store.on_keys(1, Op::wait, {"missing", "missing", "gone"});
  Request barrier;
  barrier.op = Op::barrier;
  barrier.key = "barrier";
  barrier.number = 2;
  store.ask(2, barrier);
  EXPECT_GT(store.table.total_bytes(), 0u);
  store.ask(3, barrier);
  store.on_key(0, Op::queue_pop, "q");
  for (const char* key : {"key", "count", "barrier"}) store.on_key(0, Op::delete_key, key);
  for (const SessionId id : {0, 1, 2, 3}) store.table.close(id);
  EXPECT_EQ(store.table.total_bytes(), 0u);
}

TEST(StoreTable, RefusesWhatDoesNotFitAndChangesNothing) {
  const std::size_t one = 1 + 100 + kEntryOverhead;
  Asked store({.total_bytes = 2 * one});
  const std::string value(100, 'v');
  store.set(0, "a", value);
  EXPECT_EQ(store.refusal, "");
  store.set(0, "b", value);
  EXPECT_EQ(store.refusal, "") << "just at the limit";
  const auto refused = [&] { return store.refusal == "the store is full" && store.table.keys() == 2; };
  store.set(0, "c", "");
  EXPECT_TRUE(refused());
  store.add(0, "c", 1);
  EXPECT_TRUE(refused());
  store.on_key(0, Op::append, "c", "1");
  EXPECT_TRUE(refused());
  store.on_key(0, Op::queue_push, "q", "1");
  EXPECT_TRUE(refused());
  store.on_keys(0, Op::wait, {"c"});
  EXPECT_TRUE(refused());
  store.on_keys(0, Op::multi_set, {"c", "1", "d", "2"});
  EXPECT_TRUE(refused());
  store.on_key(0, Op::watch_key, "a");
  EXPECT_TRUE(refused());
  EXPECT_EQ(store.get("a"), value);
  store.on_key(0, Op::delete_key, "b");
  store.set(0, "c", "");
  EXPECT_EQ(store.refusal, "");
}

// --- sharing ---

TEST(StoreTable, AValueThatIsBeingSentIsNotChangedByWhatComesAfter) {
  Asked store;
  store.set(0, "k", "before");
  std::vector<Reply> sending;
  Request get;
  get.op = Op::get;
  get.key = "k";
  EXPECT_EQ(store.table.apply(1, get, sending), "");
  store.set(0, "k", "after");
  store.on_key(0, Op::append, "k", "wards");
  EXPECT_EQ(sending[0].body.view(), "before");
  EXPECT_EQ(store.get("k"), "afterwards");
}

TEST(StoreTable, AllWhoAskForAValueShareItsBytes) {
  Asked store;
  store.set(0, "k", std::string(1 << 20, 'v'));
  std::vector<Reply> replies;
  Request get;
  get.op = Op::get;
  get.key = "k";
  for (SessionId id = 0; id < 10; ++id) EXPECT_EQ(store.table.apply(id, get, replies), "");
  for (const Reply& reply : replies) EXPECT_EQ(reply.body.view().data(), replies[0].body.view().data());
}

TEST(StoreTable, ANewRoundKnowsNothing) {
  Asked store;
  store.set(0, "k", "v");
  store.on_key(0, Op::queue_push, "q", "v");
  store.on_keys(1, Op::wait, {"late"});
  store.on_key(2, Op::watch_key, "k");
  store.table.clear();
  for (SessionId id = 0; id < 10; ++id) store.table.open(id);
  EXPECT_EQ(store.table.keys(), 0u);
  EXPECT_EQ(store.table.total_bytes(), 0u);
  store.set(0, "late", "v");
  store.set(0, "k", "v");
  EXPECT_TRUE(store.others.empty());
}

}  // namespace
}  // namespace dlaunch::store
