#include <gmock/gmock.h>
#include <signal.h>
#include <unistd.h>

#include <fstream>
#include <sstream>

#include "tests/cuda/world.hpp"

namespace {

using namespace std::chrono_literals;
using testing::AllOf;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using trainer::Bucket;
using trainer::Reduction;
using trainer::Result;
using world::Job;
using world::play;
using world::rank;
using world::Role;
using world::size;

std::string words(const Result<>& result) { return result ? "ok" : result.error().text; }

// A group that ends with the role, and what it does there.
std::string seated(trainer::Milliseconds timeout, const std::function<std::string(world::Seat&)>& work) {
  auto seat = world::take_seat(timeout);
  return seat ? work(*seat) : seat.error().text;
}

Role collectives("collectives", [] {
  return seated(30s, [](world::Seat& seat) -> std::string {
    const auto n = std::size_t(size());
    const double ranks = size() * (size() + 1) / 2.0;
    for (const std::size_t count :
         {std::size_t(0), std::size_t(1), std::size_t(1001), std::size_t(300'001)}) {
      std::vector<float> floats(count);
      std::vector<double> doubles(count);
      std::vector<std::int64_t> integers(count);
      for (std::size_t i = 0; i < count; ++i) {
        floats[i] = float((i % 1000) * (rank() + 1));
        doubles[i] = double(i) * (rank() + 1);
        integers[i] = std::int64_t(i) * (rank() + 1) << 20;
      }
      if (auto done = seat.group->all_reduce(floats, Reduction::fast); !done) return words(done);
      if (auto done = seat.group->all_reduce(std::span(doubles)); !done) return words(done);
      if (auto done = seat.group->all_reduce(std::span(integers)); !done) return words(done);
      for (std::size_t i = 0; i < count; ++i) {
        if (floats[i] != float(double(i % 1000) * ranks)) return "floats differ at " + std::to_string(i);
        if (doubles[i] != double(i) * ranks) return "doubles differ at " + std::to_string(i);
        if (integers[i] != std::int64_t(double(i) * ranks) << 20)
          return "integers differ at " + std::to_string(i);
      }
      // Over the size of the staging buffer, and not a multiple of it.
      std::vector<std::byte> mine(5 * count, std::byte(rank()));
      std::vector<std::byte> all(5 * count * n);
      if (auto done = seat.group->all_gather(mine, all); !done) return words(done);
      for (std::size_t i = 0; i < all.size(); ++i) {
        if (all[i] != std::byte(i / mine.size())) return "gathered bytes differ at " + std::to_string(i);
      }
      if (auto done = seat.group->broadcast(mine, size() - 1); !done) return words(done);
      for (const auto byte : mine) {
        if (byte != std::byte(size() - 1)) return "broadcast bytes differ";
      }
      if (auto done = seat.group->barrier(); !done) return words(done);
    }
    return "ok";
  });
});

TEST(Nccl, SumsGathersAndSpreadsHostMemoryOfAnySize) {
  for (const int ranks : {1, 2, 3}) {
    EXPECT_THAT(play({.role = "collectives", .ranks = ranks}), Each("ok")) << ranks << " ranks";
  }
}

Role tree("tree", [] {
  return seated(30s, [](world::Seat& seat) -> std::string {
    std::vector<float> values(1);
    auto done = seat.group->all_reduce(values, Reduction::tree);
    return done ? "ok" : done.error().code == trainer::Errc::usage ? done.error().hint : "wrong code";
  });
});

TEST(Nccl, RefusesTheTreeAndNamesWhatHasOne) {
  EXPECT_THAT(play({.role = "tree"}), Each(AllOf(HasSubstr("--reduce=fast"), HasSubstr("--backend gloo"))));
}

// Steps of a reducer whose gradients are written by slow work on the lane: what is read after finish() is the
// sum of what the ranks wrote.
constexpr std::size_t kFloats = 3000;
const std::vector<Bucket> kBuckets = {{2000, 3000}, {500, 2000}, {0, 500}};

Role reducer("reducer", [] {
  return seated(30s, [](world::Seat& seat) -> std::string {
    auto& device = *seat.device;
    auto gradients = *device.allocate(kFloats * sizeof(float));
    auto read = *device.allocate(kFloats * sizeof(float));
    auto square = *device.allocate(200 * 200 * sizeof(float));
    auto slow = [&] {
      device.gemm(false, false, 200, 200, 200, 1, square.floats(), 200, square.floats(), 200, 0,
                  square.floats(), 200);
    };
    auto reducer = world::module().make_nccl_reducer(*seat.group, device, gradients.floats(), kBuckets);
    if (!reducer) return reducer.error().text;
    double busy = 0;
    for (int step = 0; step < 4; ++step) {
      (*reducer)->begin();
      for (const std::size_t offset :
           {std::size_t(2500), std::size_t(2000), std::size_t(400), std::size_t(0)}) {
        slow();
        const std::size_t end = offset == 2500 ? 3000 : offset == 2000 ? 2500 : offset == 400 ? 2000 : 400;
        device.fill(gradients.floats() + offset, float(offset) + float(100 * step + rank()), end - offset);
        (*reducer)->ready(offset);
      }
      auto times = (*reducer)->finish();
      if (!times) return times.error().text;
      busy += times->busy;
      if (step > 0 && times->bytes != kFloats * sizeof(float)) return "wrong bytes";
      device.copy(read.floats(), gradients.floats(), kFloats);
      std::vector<float> host(kFloats);
      device.download(host.data(), read.floats(), kFloats * sizeof(float));
      if (auto done = device.synchronize(); !done) return words(done);
      for (std::size_t i = 0; i < kFloats; ++i) {
        const std::size_t offset = i >= 2500 ? 2500 : i >= 2000 ? 2000 : i >= 400 ? 400 : 0;
        const float expected =
            float(size()) * (float(offset) + float(100 * step)) + float(size() * (size() - 1) / 2);
        if (host[i] != expected) {
          return "step " + std::to_string(step) + " differs at " + std::to_string(i);
        }
      }
    }
    return busy > 0 ? "ok" : "no time passed";
  });
});

TEST(NcclReducer, GivesTheLaneTheSumsOfAllRanks) {
  for (const int ranks : {1, 2, 4}) {
    EXPECT_THAT(play({.role = "reducer", .ranks = ranks}), Each("ok")) << ranks << " ranks";
  }
}

TEST(NcclReducer, IsWrongWithoutTheWaitsBetweenStreams) {
  if (!world::on_stand_ins()) GTEST_SKIP() << "only a stand-in can lose waits";
  EXPECT_THAT(play({.role = "reducer", .ranks = 2, .everywhere = {{"FAKE_CUDA_LOSE_WAITS", "1"}}}),
              Each(HasSubstr("differs at")));
}

TEST(NcclReducer, ReducesBucketsInTheirOrderOnOneStreamOfItsOwn) {
  if (!world::on_stand_ins()) GTEST_SKIP() << "only a stand-in keeps a log";
  const std::string log = world::temporary_folder() + "/log";
  ASSERT_THAT(play({.role = "reducer", .everywhere = {{"FAKE_NCCL_LOG", log}}}), ElementsAre("ok"));
  std::stringstream lines;
  lines << std::ifstream(log).rdbuf();
  std::string expected;
  for (int step = 0; step < 4; ++step)
    expected += "0 allreduce 1000 0\n0 allreduce 1500 0\n0 allreduce 500 0\n";
  EXPECT_EQ(lines.str(), expected);
}

Role unready("unready", [] {
  return seated(30s, [](world::Seat& seat) -> std::string {
    auto gradients = *seat.device->allocate(kFloats * sizeof(float));
    auto reducer =
        *world::module().make_nccl_reducer(*seat.group, *seat.device, gradients.floats(), kBuckets);
    reducer->begin();
    reducer->ready(400);
    auto times = reducer->finish();
    return times ? "ok" : times.error().text;
  });
});

TEST(NcclReducer, SaysWhichBucketWasNeverReady) {
  EXPECT_THAT(play({.role = "unready"}), ElementsAre("bucket 2 of 3 was never ready"));
}

// All ranks do two collectives; before the second, rank 1 does what FATE says.
void meet_fate() {
  if (rank() != 1) return;
  if (world::variable("FATE") == "kill") ::raise(SIGKILL);
  if (world::variable("FATE") == "stop") ::raise(SIGSTOP);
}

Role fated("fated", [] {
  return seated(1s, [](world::Seat& seat) -> std::string {
    if (auto done = seat.group->barrier(); !done) return "early: " + words(done);
    meet_fate();
    auto done = seat.group->barrier();
    if (done) return "ok";
    // Of no more use, and says so again; the device as well.
    const auto again = seat.group->barrier();
    const auto device = seat.device->synchronize();
    return again || device ? "still in use" : words(done);
  });
});

TEST(Nccl, NamesAKilledPeer) {
  const auto said = play({.role = "fated", .ranks = 3, .everywhere = {{"FATE", "kill"}}});
  EXPECT_THAT(said[1], HasSubstr("(signal 9)"));
  for (const int other : {0, 2})
    EXPECT_THAT(said[std::size_t(other)], HasSubstr("rank 1 is silent since collective 2"));
}

TEST(Nccl, NamesAStoppedPeerAfterTheTimeOut) {
  const auto said = play({.role = "fated", .ranks = 3, .everywhere = {{"FATE", "stop"}}, .stay = {1}});
  for (const int other : {0, 2})
    EXPECT_THAT(said[std::size_t(other)], HasSubstr("rank 1 is silent since collective 2"));
}

TEST(Nccl, NamesNobodyWhenAllRanksGiveUp) {
  if (!world::on_stand_ins()) GTEST_SKIP() << "only a stand-in fails on request";
  const auto said = play({.role = "fated", .ranks = 3, .at = {{1, {{"FAKE_NCCL_FAIL", "2"}}}}});
  EXPECT_THAT(said, Each(AllOf(HasSubstr("NCCL: "), HasSubstr("in collective 2"), Not(HasSubstr("silent")))));
  EXPECT_THAT(said[1], HasSubstr("injected"));
}

// A peer is lost while only the lane waits for it: nothing was asked of the group after finish().
Role lane("lane", [] {
  return seated(1s, [](world::Seat& seat) -> std::string {
    auto gradients = *seat.device->allocate(kFloats * sizeof(float));
    auto reducer =
        *world::module().make_nccl_reducer(*seat.group, *seat.device, gradients.floats(), kBuckets);
    for (int step = 0; step < 2; ++step) {
      if (step == 1) {
        if (auto done = seat.device->synchronize(); !done) return "early: " + words(done);
        meet_fate();
      }
      reducer->begin();
      reducer->ready(0);
      if (auto times = reducer->finish(); !times) return "early: " + times.error().text;
    }
    return words(seat.device->synchronize());
  });
});

TEST(Nccl, EndsAWaitOfTheDeviceForALostPeer) {
  const auto said = play({.role = "lane", .ranks = 2, .everywhere = {{"FATE", "stop"}}, .stay = {1}});
  EXPECT_THAT(said[0], HasSubstr("rank 1 is silent since collective 4 (bucket 0)"));
}

Role absent("absent", [] {
  if (rank() == 1) ::pause();
  return seated(500ms, [](world::Seat&) { return std::string("ok"); });
});

TEST(Nccl, NamesARankThatNeverCame) {
  const auto said = play({.role = "absent", .ranks = 2, .stay = {1}});
  EXPECT_THAT(said[0], HasSubstr("rank 1 is silent since NCCL's start"));
}

TEST(Nccl, PassesOnThatTwoRanksHaveOneGpu) {
  if (!world::on_stand_ins()) GTEST_SKIP() << "the stand-in's devices are told apart by a variable";
  EXPECT_THAT(play({.role = "tree", .ranks = 2, .everywhere = {{"FAKE_CUDA_UUID", "7"}}}),
              Each(HasSubstr("Duplicate GPU")));
}

// The device's own slow work is no silence of a peer.
Role patient("patient", [] {
  return seated(500ms, [](world::Seat& seat) -> std::string {
    auto square = *seat.device->allocate(300 * 300 * sizeof(float));
    for (int i = 0; i < 40; ++i) {
      seat.device->gemm(false, false, 300, 300, 300, 1, square.floats(), 300, square.floats(), 300, 0,
                        square.floats(), 300);
    }
    return words(seat.device->synchronize());
  });
});

TEST(Nccl, TimesCollectivesAndNotTheDevicesOwnWork) {
  if (!world::on_stand_ins()) GTEST_SKIP() << "a GPU is too fast for this";
  EXPECT_THAT(play({.role = "patient"}), ElementsAre("ok"));
}

}  // namespace
