#include "dlaunch/store/protocol.hpp"

#include <chrono>

#include "../store_vectors.hpp"

namespace dlaunch::store::test {
namespace {

using Step = Decoder::Step;

struct Outcome {
  Step step;
  Op op = Op::set;
  Dialect dialect = Dialect::unknown;
};

// The last step that these bytes lead to.
Outcome decode(Decoder& decoder, std::string_view bytes) {
  Request request;
  decoder.feed(bytes);
  Outcome outcome{Step::more};
  for (;;) {
    const Step step = decoder.next(request);
    outcome.dialect = decoder.dialect();
    if (step == Step::request) {
      outcome.step = step;
      outcome.op = request.op;
      continue;
    }
    if (step == Step::broken) outcome.step = step;
    return outcome;
  }
}

Outcome decode(std::string_view bytes, ProtocolLimits limits = {}) {
  Decoder decoder(limits);
  return decode(decoder, bytes);
}

TEST(StoreDecoder, KnowsDialect2ByItsFirstRequest) {
  const Outcome outcome = decode(kValidate + code(13) + u32(4242));
  EXPECT_EQ(outcome.op, Op::ping);
  EXPECT_EQ(outcome.dialect, Dialect::two);
}

TEST(StoreDecoder, TakesAZeroWithoutTheMagicForASetOfTheOldDialects) {
  const Outcome outcome = decode(code(0) + vec("/key") + vec("value"));
  EXPECT_EQ(outcome.step, Step::request);
  EXPECT_EQ(outcome.op, Op::set);
  EXPECT_EQ(outcome.dialect, Dialect::one);
}

TEST(StoreDecoder, TakesASevenOnAConnectionOfItsOwnForWatchKey) {
  const Outcome outcome = decode(code(7) + vec("/key"));
  EXPECT_EQ(outcome.op, Op::watch_key);
  EXPECT_EQ(outcome.dialect, Dialect::one_a);
}

TEST(StoreDecoder, TakesASevenAfterOtherRequestsForDeleteKey) {
  const Outcome outcome = decode(code(6) + code(7) + vec("/key"));
  EXPECT_EQ(outcome.op, Op::delete_key);
  EXPECT_EQ(outcome.dialect, Dialect::one_b);
}

TEST(StoreDecoder, TakesAnEightThatGoesOnForAppend) {
  Decoder decoder;
  EXPECT_EQ(decode(decoder, code(8) + vec("/key")).step, Step::more);
  EXPECT_TRUE(decoder.ambiguous());
  const Outcome outcome = decode(decoder, vec("tail"));
  EXPECT_EQ(outcome.op, Op::append);
  EXPECT_EQ(outcome.dialect, Dialect::one_b);
  EXPECT_FALSE(decoder.ambiguous());
}

TEST(StoreDecoder, TakesAnEightFollowedBySilenceForDeleteKey) {
  Decoder decoder;
  EXPECT_EQ(decode(decoder, code(8) + vec("/key")).step, Step::more);
  ASSERT_TRUE(decoder.ambiguous());
  decoder.silence();
  Request request;
  ASSERT_EQ(decoder.next(request), Step::request);
  EXPECT_EQ(request.op, Op::delete_key);
  EXPECT_EQ(request.key, "/key");
  EXPECT_EQ(decoder.dialect(), Dialect::one_a);
  // From now on the dialect is known.
  EXPECT_EQ(decode(decoder, code(8) + vec("/other")).op, Op::delete_key);
  EXPECT_FALSE(decoder.ambiguous());
}

TEST(StoreDecoder, IsNotAmbiguousBeforeTheKeyIsWhole) {
  Decoder decoder;
  const std::string bytes = code(8) + vec("/key");
  decode(decoder, bytes.substr(0, bytes.size() - 1));
  EXPECT_FALSE(decoder.ambiguous());
}

TEST(StoreDecoder, KnowsTheUnreleasedDialectByTheMagicInFrontOfEachRequest) {
  const std::string magic = u32(kMagic);
  EXPECT_EQ(decode(magic + code(0) + vec("/k") + vec("v") + magic + code(11)).op, Op::cancel_wait);
  EXPECT_EQ(decode(magic + code(6) + u32(0) + code(6)).step, Step::broken);
  EXPECT_EQ(decode("\xCE\xF7\x85 no magic").step, Step::broken);
}

TEST(StoreDecoder, RefusesCodesThatItsDialectDoesNotHave) {
  EXPECT_EQ(decode(kValidate + code(19)).step, Step::broken);
  EXPECT_EQ(decode(kValidate + code(18) + vec("/k") + u64(2)).op, Op::barrier);
  EXPECT_EQ(decode(code(12)).step, Step::broken);
  EXPECT_EQ(decode("GET / HTTP/1.0").step, Step::broken);
  EXPECT_EQ(decode(kValidate + kValidate).step, Step::broken) << "VALIDATE opens a connection, once";
}

TEST(StoreDecoder, StaysBroken) {
  Decoder decoder;
  decode(decoder, kValidate + code(99));
  EXPECT_EQ(decode(decoder, code(7)).step, Step::broken);
  EXPECT_EQ(decoder.error(), "unknown request code 99");
}

// --- limits: each is taken at the limit and refused one above it, from the length alone ---

TEST(StoreDecoder, LimitsKeys) {
  EXPECT_EQ(decode(kValidate + code(3) + vec(std::string(8192, 'k'))).op, Op::get);
  EXPECT_EQ(decode(kValidate + code(3) + u64(8193)).step, Step::broken);
  ProtocolLimits wider;
  wider.key_bytes = 8193;
  EXPECT_EQ(decode(kValidate + code(3) + u64(8193), wider).step, Step::more) << "the limit decides, nothing else";
}

TEST(StoreDecoder, LimitsValuesByDialect) {
  const std::string set = code(1) + vec("/k");
  EXPECT_EQ(decode(kValidate + set + vec(std::string(8 << 20, 'v'))).op, Op::set);
  EXPECT_EQ(decode(kValidate + set + u64((8 << 20) + 1)).step, Step::broken);
  const std::string old_set = code(0) + vec("/k");
  EXPECT_EQ(decode(old_set + u64(64 << 20)).step, Step::more);
  EXPECT_EQ(decode(old_set + u64((64 << 20) + 1)).step, Step::broken);
}

TEST(StoreDecoder, LimitsBothValuesOfCompareSetAndThoseOfQueues) {
  const std::string too_long = u64((8 << 20) + 1);
  EXPECT_EQ(decode(kValidate + code(2) + vec("/k") + too_long).step, Step::broken);
  EXPECT_EQ(decode(kValidate + code(2) + vec("/k") + vec("") + too_long).step, Step::broken);
  EXPECT_EQ(decode(kValidate + code(9) + vec("/k") + too_long).step, Step::broken);
  EXPECT_EQ(decode(kValidate + code(14) + vec("/k") + too_long).step, Step::broken);
  EXPECT_EQ(decode(kValidate + code(11) + u64(1) + vec("/k") + too_long).step, Step::broken);
}

TEST(StoreDecoder, LimitsTheNumberOfKeys) {
  std::string keys;
  for (int i = 0; i < 131072; ++i) keys += u64(0);
  for (const int op : {5, 6, 10}) {
    EXPECT_EQ(decode(kValidate + code(op) + u64(131072) + keys).step, Step::request) << op;
    EXPECT_EQ(decode(kValidate + code(op) + u64(131073)).step, Step::broken) << op;
  }
  EXPECT_EQ(decode(kValidate + code(11) + u64(131072) + keys + keys).op, Op::multi_set);
  EXPECT_EQ(decode(kValidate + code(11) + u64(131073)).step, Step::broken);
}

TEST(StoreDecoder, RefusesLengthsThatNoMachineCouldHold) {
  EXPECT_EQ(decode(kValidate + code(1) + u64(std::uint64_t{1} << 63)).step, Step::broken);
  EXPECT_EQ(decode(kValidate + code(1) + u64(~std::uint64_t{0})).step, Step::broken);
  EXPECT_EQ(decode(kValidate + code(6) + u64(~std::uint64_t{0})).step, Step::broken);
}

TEST(StoreDecoder, LimitsARequestAsAWhole) {
  ProtocolLimits limits;
  limits.request_bytes = 100;
  const std::string three = code(11) + u64(3) + vec("/a") + vec("1") + vec("/b") + vec("2") + vec("/c");
  const std::size_t rest = 100 - three.size() - 8;
  EXPECT_EQ(decode(kValidate + three + vec(std::string(rest, 'v')), limits).op, Op::multi_set);
  EXPECT_EQ(decode(kValidate + three + u64(rest + 1), limits).step, Step::broken);
}

// --- cost ---

TEST(StoreDecoder, DoesNotLookTwiceAtBytesOfAnUnfinishedRequest) {
  // 131,072 keys byte by byte: 1.2 million pieces. Parsing from the start with each would be 10^11 steps.
  std::string request = kValidate + code(6) + u64(131072);
  for (int i = 0; i < 131072; ++i) request += vec("k");
  Decoder decoder;
  Request out;
  const auto start = std::chrono::steady_clock::now();
  int requests = 0;
  for (const char& byte : request) {
    decoder.feed({&byte, 1});
    requests += decoder.next(out) == Step::request;
  }
  EXPECT_EQ(requests, 1);
  EXPECT_EQ(out.many.size(), 131072u);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(5));
}

TEST(StoreDecoder, GoesOnWhereItWasHeld) {
  std::string requests = kValidate;
  for (int i = 0; i < 10; ++i) requests += code(4) + vec("/k") + u64(i);
  Decoder decoder;
  Request request;
  decoder.feed(requests);
  for (int i = 0; i < 10; ++i) {
    ASSERT_EQ(decoder.next(request), Step::request);
    EXPECT_EQ(request.number, i);
    decoder.hold();
    decoder.feed({});
  }
  EXPECT_EQ(decoder.next(request), Step::more);
}

}  // namespace
}  // namespace dlaunch::store::test
