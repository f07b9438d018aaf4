// The byte vectors over real sockets, each on a store that was reset before.
#include "../store_vectors.hpp"

#include <memory>

#include "../raw_client.hpp"
#include "agent/net_thread.hpp"

namespace dlaunch::store::test {
namespace {

using dlaunch::test::RawClient;

std::string play(const Vector& vector, std::uint16_t port) {
  std::map<int, std::unique_ptr<RawClient>> connections;
  for (std::size_t i = 0; i < vector.steps.size(); ++i) {
    const Step& step = vector.steps[i];
    const std::string where = vector.name + " step " + std::to_string(i) + ": ";
    auto& client = connections[step.connection];
    if (!client) client = std::make_unique<RawClient>(port);
    switch (step.what) {
      case Step::What::send:
        client->send(step.bytes);
        break;
      case Step::What::recv: {
        const std::string got = client->receive(step.bytes.size());
        if (step.unordered ? !same_strings(got, step.bytes) : got != step.bytes) {
          return where + "got " + hex(got) + ", wanted " + hex(step.bytes);
        }
        break;
      }
      case Step::What::silence:
        if (client->readable(std::chrono::milliseconds(step.milliseconds))) return where + "no silence";
        break;
      case Step::What::pause:
        // Time is what this step is about: nothing can be waited for.
        (void)client->readable(std::chrono::milliseconds(step.milliseconds));
        break;
      case Step::What::closed:
        if (!client->ended()) return where + "not closed";
        break;
      case Step::What::close:
        client.reset();
        break;
    }
  }
  return {};
}

class StoreVectorsOverSockets : public testing::TestWithParam<int> {};
constexpr int kShares = 4;  // so that a parallel test run is not held up by the silences in one of them

TEST_P(StoreVectorsOverSockets, Pass) {
  NetThread::Config config;
  config.addresses = {"127.0.0.1"};
  config.store = true;
  auto thread = NetThread::open(std::move(config));
  ASSERT_TRUE(thread) << thread.error().text;
  for (std::size_t i = GetParam(); i < vectors().size(); i += kShares) {
    const Vector& vector = vectors()[i];
    const ProtocolLimits limits = limits_of(vector.name), usual;
    const bool other_limits =
        limits.key_bytes != usual.key_bytes || limits.old_value_bytes != usual.old_value_bytes;
    if (!vector.told_apart || shows_the_legacy_answer(vector.name) || other_limits) continue;
    (*thread)->reset_store({});
    EXPECT_EQ(play(vector, (*thread)->port()), "");
  }
}

INSTANTIATE_TEST_SUITE_P(Shares, StoreVectorsOverSockets, testing::Range(0, kShares));

}  // namespace
}  // namespace dlaunch::store::test
