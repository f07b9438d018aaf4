#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <cstdlib>
#include <random>

#include "../image_bytes.hpp"
#include "trainer/data/loader.hpp"

namespace trainer {
namespace {

// Plain memory, counted; whatever else a device can do is not the loader's business.
class HostMemory : public Device {
 public:
  ~HostMemory() override { EXPECT_EQ(blocks, 0) << "the loader kept memory"; }

  Result<Memory> allocate_host(std::size_t bytes) override {
    if (blocks == most_blocks) return Error{Errc::failed, "no memory"};
    ++blocks;
    largest = std::max(largest, bytes);
    return Memory(*this, std::calloc(1, bytes), bytes, true);
  }
  void release(void* data, std::size_t, bool) override {
    std::free(data);
    --blocks;
  }

  int blocks = 0;
  int most_blocks = 1 << 20;
  std::size_t largest = 0;

  DeviceKind kind() const override { return DeviceKind::cpu; }
  std::string name() const override { return "fake"; }
  std::string description() const override { return {}; }
  std::string unique_id() const override { return {}; }
  MemoryUse memory_use() const override { return {}; }
  Result<Memory> allocate(std::size_t) override { std::abort(); }
  void upload(void*, const void*, std::size_t) override { std::abort(); }
  void download(void*, const void*, std::size_t) override { std::abort(); }
  void copy(float*, const float*, std::size_t) override { std::abort(); }
  void copy_from(float*, Device&, const float*, std::size_t) override { std::abort(); }
  Mark mark() override { std::abort(); }
  Result<> wait(Mark) override { std::abort(); }
  Result<> synchronize() override { std::abort(); }
  Result<> stage_out(void*, const void*, std::size_t, Mark) override { std::abort(); }
  Result<> stage_in(void*, const void*, std::size_t) override { std::abort(); }
  void gemm(bool, bool, int, int, int, float, const float*, int, const float*, int, float, float*,
            int) override {
    std::abort();
  }
  void add_bias_to_columns(float*, const float*, std::size_t, std::size_t, bool) override { std::abort(); }
  void add_bias_to_rows(float*, const float*, std::size_t, std::size_t, bool) override { std::abort(); }
  void sum_columns(float*, const float*, std::size_t, std::size_t, bool) override { std::abort(); }
  void sum_rows(float*, const float*, std::size_t, std::size_t, bool) override { std::abort(); }
  void relu_backward(float*, const float*, std::size_t) override { std::abort(); }
  void im2col(float*, const float*, const ConvShape&) override { std::abort(); }
  void col2im(float*, const float*, const ConvShape&) override { std::abort(); }
  void max_pool(float*, std::uint8_t*, const float*, std::size_t, int, int) override { std::abort(); }
  void max_pool_backward(float*, const float*, const std::uint8_t*, std::size_t, int, int) override {
    std::abort();
  }
  void planes_to_rows(float*, const float*, int, int, std::size_t) override { std::abort(); }
  void rows_to_planes(float*, const float*, int, int, std::size_t) override { std::abort(); }
  void cross_entropy(float*, float*, const float*, const std::int32_t*, std::size_t, int, float) override {
    std::abort();
  }
  void evaluate(Tally*, const float*, const std::int32_t*, std::size_t, int) override { std::abort(); }
  void fill(float*, float, std::size_t) override { std::abort(); }
  void add(float*, const float*, std::size_t) override { std::abort(); }
  void scale(float*, float, std::size_t) override { std::abort(); }
  void clip(float*, std::size_t, float, float*) override { std::abort(); }
  void sgd(float*, const float*, float*, std::size_t, const SgdStep&) override { std::abort(); }
  void adamw(float*, const float*, float*, float*, std::size_t, const AdamStep&) override { std::abort(); }
};

using Batches = std::vector<std::vector<std::uint32_t>>;

constexpr int kLargest = 8;

Batches random_batches(std::size_t count, std::size_t images, unsigned seed) {
  std::mt19937 random(seed);
  Batches batches(count);
  for (auto& batch : batches) {
    batch.resize(1 + random() % kLargest);
    for (auto& index : batch) index = static_cast<std::uint32_t>(random() % images);
  }
  return batches;
}

bool holds(const Batch& batch, const std::vector<std::uint32_t>& indices, const Dataset& data) {
  if (batch.size != static_cast<int>(indices.size())) return false;
  const std::size_t pixels = data.shape.pixels(), plane = pixels / data.mean.size();
  for (std::size_t i = 0; i < indices.size(); ++i) {
    if (batch.labels[i] != data.train.labels[indices[i]]) return false;
    for (std::size_t p = 0; p < pixels; ++p) {
      const float byte = data.train.images[indices[i] * pixels + p];
      const std::size_t channel = p / plane;
      if (batch.images[i * pixels + p] != (byte / 255.0f - data.mean[channel]) / data.deviation[channel]) {
        return false;
      }
    }
  }
  return true;
}

class LoaderTest : public testing::Test {
 protected:
  std::unique_ptr<Loader> make(int workers, int prefetch) {
    auto loader =
        Loader::create(data, data.train, device, kLargest, {.workers = workers, .prefetch = prefetch});
    EXPECT_TRUE(loader);
    return std::move(*loader);
  }

  HostMemory device;
  const Dataset data = random_dataset(100, 10, {3, 5, 4}, 10);
};

using LoaderDeathTest = LoaderTest;

TEST_F(LoaderTest, GivesTheBatchesInOrderHoweverManyThreadsThereAre) {
  const Batches batches = random_batches(200, data.train.size(), 1);
  for (const auto& [workers, prefetch] : {std::pair{0, 0}, {0, 2}, {1, 1}, {1, 4}, {2, 1}, {4, 3}, {7, 16}}) {
    SCOPED_TRACE(std::to_string(workers) + " workers, prefetch " + std::to_string(prefetch));
    auto loader = make(workers, prefetch);
    EXPECT_EQ(loader->next().size, 0);  // before any list
    loader->start(batches);
    for (const auto& indices : batches) {
      ASSERT_TRUE(holds(loader->next(), indices, data));
      loader->release();
    }
    EXPECT_EQ(loader->next().size, 0);
    EXPECT_EQ(loader->next().size, 0);
  }
}

TEST_F(LoaderTest, HasMemoryForAsManyBatchesAsItMayPrefetch) {
  auto loader = make(3, 5);
  EXPECT_EQ(device.blocks, 5);
  EXPECT_EQ(device.largest, kLargest * (60 * sizeof(float) + sizeof(std::int32_t)));
}

TEST_F(LoaderTest, ABatchStaysAsItIsUntilItIsReleased) {
  const Batches batches = random_batches(60, data.train.size(), 2);
  for (const int workers : {0, 3}) {
    auto loader = make(workers, 3);
    loader->start(batches);
    std::vector<Batch> held;  // always the last three
    for (std::size_t i = 0; i < batches.size(); ++i) {
      if (held.size() == 3) {
        loader->release();
        held.erase(held.begin());
      }
      held.push_back(loader->next());
      for (std::size_t h = 0; h < held.size(); ++h) {
        ASSERT_TRUE(holds(held[h], batches[i + 1 + h - held.size()], data)) << i;
      }
    }
  }
}

TEST_F(LoaderTest, ANewListDropsWhatWasAheadAndKeepsWhatIsHeld) {
  for (const int workers : {0, 1, 4}) {
    auto loader = make(workers, 4);
    std::mt19937 random(3);
    for (unsigned round = 0; round < 300; ++round) {
      const Batches old = random_batches(6, data.train.size(), 2 * round);
      const Batches fresh = random_batches(6, data.train.size(), 2 * round + 1);
      loader->start(old);
      const std::size_t taken = random() % 4;  // from none at all to the middle
      for (std::size_t i = 0; i + 1 < taken; ++i) {
        loader->next();
        loader->release();
      }
      Batch held;
      if (taken) held = loader->next();
      loader->start(fresh);
      for (const auto& indices : fresh) {
        ASSERT_TRUE(holds(loader->next(), indices, data));
        if (taken) {
          ASSERT_TRUE(holds(held, old[taken - 1], data));
        } else {
          loader->release();
        }
        if (taken && &indices == &fresh[2]) break;  // every slot is held
      }
      if (taken) {
        for (int i = 0; i < 4; ++i) loader->release();
      }
    }
  }
}

TEST_F(LoaderTest, CanBeDestroyedAtAnyMoment) {
  std::mt19937 random(4);
  for (unsigned round = 0; round < 300; ++round) {
    auto loader = make(static_cast<int>(random() % 4), 1 + static_cast<int>(random() % 4));
    if (round % 5 == 0) continue;
    loader->start(random_batches(20, data.train.size(), round));
    for (unsigned i = random() % 6; i > 0; --i) {
      loader->next();
      if (i > 1 || round % 2) loader->release();
    }
  }
  EXPECT_EQ(device.blocks, 0);
}

TEST_F(LoaderTest, LeavesEmptyListsOut) {
  auto loader = make(1, 2);
  loader->start({{}, {5, 6}, {}, {7}});
  EXPECT_TRUE(holds(loader->next(), {5, 6}, data));
  loader->release();
  EXPECT_TRUE(holds(loader->next(), {7}, data));
  loader->release();
  EXPECT_EQ(loader->next().size, 0);
}

TEST_F(LoaderTest, RefusesOptionsThatCannotWork) {
  const auto text = [&](int workers, int prefetch, int largest) {
    auto loader =
        Loader::create(data, data.train, device, largest, {.workers = workers, .prefetch = prefetch});
    return loader ? "" : loader.error().text;
  };
  EXPECT_EQ(text(-1, 2, 8), "--workers is 0 to 256, not -1");
  EXPECT_EQ(text(257, 2, 8), "--workers is 0 to 256, not 257");
  EXPECT_EQ(text(1, 0, 8), "--prefetch is 1 to 4096, not 0");
  EXPECT_EQ(text(0, 0, 8), "");
  EXPECT_EQ(text(1, 1, 0), "a batch has at least 1 image, not 0");
  device.most_blocks = 3;
  EXPECT_EQ(text(1, 4, 8), "memory for batches: no memory");
}

TEST_F(LoaderDeathTest, AFaultOfTheCallerEndsTheProgramInsteadOfWaitingForEver) {
  testing::GTEST_FLAG(death_test_style) = "threadsafe";
  EXPECT_DEATH(
      {
        auto loader = make(1, 1);
        loader->start({{1}, {2}});
        loader->next();
        loader->next();
      },
      "every slot held");
  EXPECT_DEATH(make(1, 1)->release(), "release\\(\\) of nothing");
  EXPECT_DEATH(make(1, 1)->start({{100}}), "beyond the split");
  EXPECT_DEATH(make(1, 1)->start({std::vector<std::uint32_t>(9)}), "larger than the largest");
}

}  // namespace
}  // namespace trainer
