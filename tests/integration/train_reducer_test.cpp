#include <gmock/gmock.h>

#include <condition_variable>
#include <mutex>

#include "trainer/device/cpu/cpu_device.hpp"
#include "trainer/parallel/reducer.hpp"

namespace trainer {
namespace {

// Doubles every value, remembers where, and can be held up.
class DoublingCollective : public Collective {
 public:
  explicit DoublingCollective(const float* base) : base_(base) {}
  int rank() const override { return 0; }
  int size() const override { return 2; }
  std::string backend() const override { return "doubling"; }
  Result<> all_reduce(std::span<float> values, Reduction reduction) override {
    std::unique_lock lock(mutex);
    begun.push_back(values.data() - base_);
    reductions.push_back(reduction);
    changed.notify_all();
    if (!changed.wait_for(lock, std::chrono::seconds(20), [&] { return !held; }))
      return Error{Errc::timed_out, "held"};
    if (failing) return Error{Errc::unreachable, "rank 1 closed its connection"};
    for (auto& value : values) value *= 2;
    return {};
  }
  Result<> all_reduce(std::span<double>) override { return {}; }
  Result<> all_reduce(std::span<std::int64_t>) override { return {}; }
  Result<> broadcast(std::span<std::byte>, int) override { return {}; }
  Result<> all_gather(std::span<const std::byte>, std::span<std::byte>) override { return {}; }
  Result<> barrier() override { return {}; }

  void release() {
    std::lock_guard lock(mutex);
    held = false;
    changed.notify_all();
  }
  bool wait_until_begun(std::size_t count) {
    std::unique_lock lock(mutex);
    return changed.wait_for(lock, std::chrono::seconds(20), [&] { return begun.size() >= count; });
  }

  std::mutex mutex;
  std::condition_variable changed;
  bool held = false;
  bool failing = false;
  std::vector<std::ptrdiff_t> begun;
  std::vector<Reduction> reductions;

 private:
  const float* base_;
};

class HostReducerTest : public testing::Test {
 protected:
  std::unique_ptr<Reducer> make(Reduction reduction = Reduction::fast) {
    auto made =
        make_host_reducer(*device, collective, gradients.data(), {{60, 100}, {20, 60}, {0, 20}}, reduction);
    EXPECT_TRUE(made);
    return std::move(*made);
  }
  std::unique_ptr<Device> device = make_cpu_device(0, plain_gemm, "");
  std::vector<float> gradients = std::vector<float>(100, 1.0f);
  DoublingCollective collective{gradients.data()};
};

TEST_F(HostReducerTest, ReducesEveryBucketOnceFromTheLastToTheFirst) {
  auto reducer = make(Reduction::tree);
  for (int step = 0; step < 3; ++step) {
    std::fill(gradients.begin(), gradients.end(), 1.0f);
    collective.begun.clear();
    reducer->begin();
    reducer->ready(80);
    reducer->ready(30);
    reducer->ready(0);
    auto times = reducer->finish();
    ASSERT_TRUE(times);
    EXPECT_THAT(collective.begun, testing::ElementsAre(60, 20, 0));
    EXPECT_THAT(gradients, testing::Each(2.0f));
    EXPECT_EQ(times->bytes, 400u);
    EXPECT_GE(times->busy, 0);
  }
  EXPECT_THAT(collective.reductions, testing::Each(Reduction::tree));
}

TEST_F(HostReducerTest, ABucketIsReducedWhileTheNextIsStillWritten) {
  collective.held = true;
  auto reducer = make();
  reducer->begin();
  reducer->ready(60);
  EXPECT_TRUE(collective.wait_until_begun(1));  // though nothing else is ready
  gradients[0] = 5;                             // backward goes on
  reducer->ready(0);
  collective.release();
  ASSERT_TRUE(reducer->finish());
  EXPECT_EQ(gradients[0], 10);
}

TEST_F(HostReducerTest, ABucketThatIsNotWhollyWrittenWaits) {
  auto reducer = make();
  reducer->begin();
  reducer->ready(61);  // all of the first but one value
  gradients[60] = 7;
  reducer->ready(60);
  reducer->ready(0);
  ASSERT_TRUE(reducer->finish());
  EXPECT_EQ(gradients[60], 14);
  EXPECT_THAT(collective.begun, testing::ElementsAre(60, 20, 0));
}

TEST_F(HostReducerTest, AFailureComesOutOfFinishAndStays) {
  collective.failing = true;
  auto reducer = make();
  for (int step = 0; step < 2; ++step) {
    reducer->begin();
    reducer->ready(0);
    auto times = reducer->finish();
    ASSERT_FALSE(times);
    EXPECT_EQ(times.error().text, "rank 1 closed its connection");
  }
  EXPECT_EQ(collective.begun.size(), 1u);  // nothing more is asked of a broken group
}

TEST_F(HostReducerTest, MayBeDestroyedWithoutFinish) {
  auto reducer = make();
  reducer->begin();
  reducer->ready(60);
  reducer.reset();
}

}  // namespace
}  // namespace trainer
