#include <gmock/gmock.h>

#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>
#include <sstream>
#include <thread>

#include "trainer/collective/collective.hpp"
#include "trainer/device/cpu/cpu_device.hpp"
#include "trainer/loop/allreduce.hpp"
#include "trainer/module/module.hpp"

namespace trainer {
namespace {

using testing::HasSubstr;

// A store within this process; each rank has a client of its own.
struct Board {
  std::mutex mutex;
  std::condition_variable changed;
  std::map<std::string, std::string> values;
};

class BoardRendezvous : public Rendezvous {
 public:
  explicit BoardRendezvous(Board& board) : board_(board) {}
  Result<> set(const std::string& key, const std::string& value) override {
    std::lock_guard lock(board_.mutex);
    board_.values[key] = value;
    board_.changed.notify_all();
    return {};
  }
  Result<std::string> get(const std::string& key, Milliseconds limit) override {
    std::unique_lock lock(board_.mutex);
    if (!board_.changed.wait_for(lock, limit, [&] { return board_.values.contains(key); })) {
      return Error{Errc::timed_out, "no '" + key + "'"};
    }
    return board_.values[key];
  }
  Result<bool> has(const std::string& key) override {
    std::lock_guard lock(board_.mutex);
    return board_.values.contains(key);
  }

 private:
  Board& board_;
};

// Over sockets, and through shared memory.
class GlooTest : public testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    auto module = host_module();
    if (!module) GTEST_SKIP() << module.error().text;
    module_ = *module;
  }

  // work(group) in a thread for each of `size` ranks.
  void with_ranks(int size, const std::function<void(Collective&)>& work,
                  Milliseconds timeout = std::chrono::seconds(30)) {
    Board board;
    std::vector<std::thread> threads;
    for (int rank = 0; rank < size; ++rank) {
      threads.emplace_back([&, rank] {
        BoardRendezvous rendezvous(board);
        auto group = module_->make_gloo({rank, size, "127.0.0.1", timeout, GetParam()}, rendezvous);
        ASSERT_TRUE(group) << group.error().text;
        EXPECT_EQ((*group)->rank(), rank);
        EXPECT_EQ((*group)->size(), size);
        work(**group);
      });
    }
    for (auto& thread : threads) thread.join();
  }

  // Numbers of very different sizes, so that nearly every addition rounds.
  static std::vector<float> values_of(int rank, std::size_t count) {
    std::vector<float> values(count);
    auto state = std::uint32_t(rank) * 977 + 1;
    for (auto& value : values) {
      state = state * 1664525 + 1013904223;
      value = float(std::int32_t(state)) / float(1 + (state >> 7) % 1000);
    }
    return values;
  }

  const HostModule* module_ = nullptr;
};

constexpr std::size_t kLarge = 1 << 20;
constexpr std::size_t kSizes[] = {0,    1,      5,
                                  1000, 100003, kLarge + 17};  // the last takes two pieces of shared memory

TEST_P(GlooTest, AllReduceIsTheSumForAnyNumberOfRanksAndAnySize) {
  for (int size = 1; size <= 8; ++size) {
    std::map<std::size_t, std::pair<std::vector<double>, std::vector<double>>>
        expected;  // sums, and of magnitudes
    for (auto count : kSizes) {
      if (count > kLarge && size != 3) continue;
      auto& [sums, magnitudes] = expected[count];
      sums.resize(count);
      magnitudes.resize(count);
      for (int rank = 0; rank < size; ++rank) {
        auto values = values_of(rank, count);
        for (std::size_t i = 0; i < count; ++i) {
          sums[i] += values[i];
          magnitudes[i] += std::abs(values[i]);
        }
      }
    }
    with_ranks(size, [&](Collective& group) {
      for (const auto& [count, wanted] : expected) {
        auto values = values_of(group.rank(), count);
        auto done = group.all_reduce(values, Reduction::fast);
        ASSERT_TRUE(done) << done.error().text;
        std::size_t wrong = 0;
        for (std::size_t i = 0; i < count; ++i)
          wrong += std::abs(values[i] - wanted.first[i]) > 1e-6 * wanted.second[i];
        ASSERT_EQ(wrong, 0u) << size << " ranks, " << count;
      }
    });
  }
}

float tree_of(const std::vector<std::vector<float>>& all, std::size_t from, std::size_t count,
              std::size_t at) {
  if (count == 1) return all[from][at];
  return tree_of(all, from, count / 2, at) + tree_of(all, from + count / 2, count / 2, at);
}

TEST_P(GlooTest, TheTreeAddsInItsFixedOrderToTheBit) {
  for (int size : {1, 2, 4, 8}) {
    with_ranks(size, [&](Collective& group) {
      for (auto count : kSizes) {
        if (count > kLarge && size != 2) continue;
        std::vector<std::vector<float>> all;
        for (int rank = 0; rank < size; ++rank) all.push_back(values_of(rank, count));
        auto values = all[std::size_t(group.rank())];
        ASSERT_TRUE(group.all_reduce(values, Reduction::tree));
        std::size_t wrong = 0;
        for (std::size_t i = 0; i < count; ++i) wrong += values[i] != tree_of(all, 0, std::size_t(size), i);
        ASSERT_EQ(wrong, 0u) << size << " ranks, " << count;
      }
    });
  }
}

TEST_P(GlooTest, TheTreeRefusesOtherSizes) {
  with_ranks(3, [](Collective& group) {
    std::vector<float> values(3);
    auto refused = group.all_reduce(values, Reduction::tree);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, Errc::usage);
  });
}

TEST_P(GlooTest, NumbersAreSummedExactly) {
  with_ranks(3, [](Collective& group) {
    std::vector<std::int64_t> counts{1, std::int64_t(1) << 53, group.rank()};
    ASSERT_TRUE(group.all_reduce(std::span<std::int64_t>(counts)));
    EXPECT_THAT(counts, testing::ElementsAre(3, 3 * (std::int64_t(1) << 53), 3));
    std::vector<double> reals{0.25, double(group.rank())};
    ASSERT_TRUE(group.all_reduce(std::span<double>(reals)));
    EXPECT_THAT(reals, testing::ElementsAre(0.75, 3.0));
  });
}

TEST_P(GlooTest, BroadcastGatherAndBarrierWorkForAnyNumberOfRanks) {
  for (int size : {1, 2, 3, 5, 8}) {
    with_ranks(size, [&](Collective& group) {
      for (int root = 0; root < size; root += std::max(1, size - 1)) {
        std::vector<int> values(1001, group.rank() == root ? root + 7 : -1);
        ASSERT_TRUE(group.broadcast(std::as_writable_bytes(std::span(values)), root));
        EXPECT_THAT(values, testing::Each(root + 7));
      }
      int mine = group.rank() * 11;
      std::vector<int> all(static_cast<std::size_t>(size));
      ASSERT_TRUE(
          group.all_gather(std::as_bytes(std::span(&mine, 1)), std::as_writable_bytes(std::span(all))));
      for (int rank = 0; rank < size; ++rank) EXPECT_EQ(all[std::size_t(rank)], rank * 11);
      ASSERT_TRUE(group.barrier());
    });
  }
}

TEST_P(GlooTest, ARankThatLeavesIsNamedByTheOthersAndTheGroupStaysBroken) {
  with_ranks(3, [](Collective& group) {
    std::vector<float> values(50000, 1.0f);
    ASSERT_TRUE(group.all_reduce(values, Reduction::fast));
    if (group.rank() == 1) return;  // its connections close
    auto failed = group.all_reduce(values, Reduction::fast);
    ASSERT_FALSE(failed);
    EXPECT_THAT(failed.error().text,
                HasSubstr("rank 1 closed its connection (collective 2, all-reduce of 200000 bytes)"));
    auto again = group.barrier();
    ASSERT_FALSE(again);
    EXPECT_EQ(again.error().text, failed.error().text);
  });
}

TEST_P(GlooTest, ARankThatIsSilentIsNamedAfterTheTimeOut) {
  std::mutex others_are_done;
  std::condition_variable changed;
  int done = 0;
  with_ranks(
      3,
      [&](Collective& group) {
        if (group.rank() == 2) {
          std::unique_lock lock(others_are_done);
          EXPECT_TRUE(changed.wait_for(lock, std::chrono::seconds(30), [&] { return done == 2; }));
          return;
        }
        std::vector<float> values(10, 1.0f);
        auto failed = group.all_reduce(values, Reduction::fast);
        ASSERT_FALSE(failed);
        EXPECT_THAT(failed.error().text, HasSubstr("rank 2 is silent"));
        std::lock_guard lock(others_are_done);
        ++done;
        changed.notify_all();
      },
      std::chrono::seconds(2));
}

TEST_P(GlooTest, TheMeasurementChecksItsSums) {
  std::ostringstream out;
  with_ranks(2, [&](Collective& group) {
    std::ostringstream nowhere;
    auto device = make_cpu_device(0, plain_gemm, "plain");
    auto done = measure_allreduce(*device, group, {.sizes = {4, 4096, 1 << 20}, .iterations = 2},
                                  group.rank() == 0 ? out : nowhere);
    EXPECT_TRUE(done);
    EXPECT_EQ(nowhere.str(), "");
  });
  EXPECT_THAT(out.str(), HasSubstr("# Out of bounds values : 0 OK"));
}

INSTANTIATE_TEST_SUITE_P(Transport, GlooTest, testing::Bool(),
                         [](const auto& info) { return info.param ? "SharedMemory" : "Sockets"; });

class WrongCollective : public Collective {
 public:
  int rank() const override { return 0; }
  int size() const override { return 2; }
  std::string backend() const override { return "wrong"; }
  Result<> all_reduce(std::span<float>, Reduction) override { return {}; }  // adds nothing
  Result<> all_reduce(std::span<double>) override { return {}; }
  Result<> all_reduce(std::span<std::int64_t>) override { return {}; }
  Result<> broadcast(std::span<std::byte>, int) override { return {}; }
  Result<> all_gather(std::span<const std::byte>, std::span<std::byte>) override { return {}; }
  Result<> barrier() override { return {}; }
};

TEST(MeasureAllreduce, TellsWrongSums) {
  WrongCollective group;
  std::ostringstream out;
  auto device = make_cpu_device(0, plain_gemm, "plain");
  auto done = measure_allreduce(*device, group, {.sizes = {400}, .iterations = 1}, out);
  ASSERT_FALSE(done);
  EXPECT_THAT(out.str(), HasSubstr("FAILED"));
}

}  // namespace
}  // namespace trainer
