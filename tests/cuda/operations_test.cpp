// Every operation of the device on random shapes, beside the CPU's.
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "tests/cuda/world.hpp"
#include "trainer/device/cpu/cpu_device.hpp"

namespace {

using trainer::ConvShape;
using trainer::Device;
using trainer::Memory;
using trainer::Tally;

constexpr int kCpu = 0;
constexpr int kGpu = 1;

// The same memory on both devices.
struct Twin {
  Memory memory[2];
  float* floats(int which) const { return memory[which].floats(); }
  std::uint8_t* bytes(int which) const { return static_cast<std::uint8_t*>(memory[which].data()); }
  std::int32_t* labels(int which) const { return static_cast<std::int32_t*>(memory[which].data()); }
  Tally* tally(int which) const { return static_cast<Tally*>(memory[which].data()); }
};

class CudaOperations : public testing::TestWithParam<int> {
 protected:
  CudaOperations() : random_(std::uint32_t(GetParam())) {
    devices_[kCpu] = trainer::make_cpu_device(0, trainer::plain_gemm, "plain");
    auto opened = world::module().open_device(0);
    EXPECT_TRUE(opened) << opened.error().text;
    devices_[kGpu] = std::move(*opened);
  }

  int between(int low, int high) { return std::uniform_int_distribution(low, high)(random_); }

  template <class T>
  Twin twin_of(const std::vector<T>& values) {
    Twin twin;
    for (const int which : {kCpu, kGpu}) {
      Device& device = *devices_[which];
      twin.memory[which] = *device.allocate(values.size() * sizeof(T));
      device.upload(twin.memory[which].data(), values.data(), values.size() * sizeof(T));
      EXPECT_TRUE(device.synchronize());
    }
    return twin;
  }
  Twin random_floats(std::size_t count) {
    std::vector<float> values(count);
    for (auto& value : values) value = std::normal_distribution<float>()(random_);
    return twin_of(values);
  }
  Twin random_labels(std::size_t count, int classes) {
    std::vector<std::int32_t> values(count);
    for (auto& value : values) value = between(0, classes - 1);
    return twin_of(values);
  }
  Twin zeros(std::size_t count) { return twin_of(std::vector<float>(count, 0)); }

  void on_both(const std::function<void(Device&, int)>& operation) {
    for (const int which : {kCpu, kGpu}) operation(*devices_[which], which);
  }
  template <class T>
  std::vector<T> read(const Twin& twin, int which) {
    std::vector<T> values(twin.memory[which].bytes() / sizeof(T));
    devices_[which]->download(values.data(), twin.memory[which].data(), values.size() * sizeof(T));
    const auto done = devices_[which]->synchronize();
    EXPECT_TRUE(done) << done.error().text;
    return values;
  }
  // Relative to the largest there is.
  void expect_near(const Twin& twin, const char* what, float tolerance = 2e-6f) {
    const auto cpu = read<float>(twin, kCpu);
    const auto gpu = read<float>(twin, kGpu);
    float scale = 1;
    for (const float value : cpu) scale = std::max(scale, std::abs(value));
    for (std::size_t i = 0; i < cpu.size(); ++i) {
      ASSERT_NEAR(cpu[i], gpu[i], tolerance * scale) << what << " at " << i << " of " << cpu.size();
    }
  }
  void expect_equal(const Twin& twin, const char* what) {
    EXPECT_EQ(read<std::uint8_t>(twin, kCpu), read<std::uint8_t>(twin, kGpu)) << what;
  }

  std::mt19937 random_;
  std::unique_ptr<Device> devices_[2];
};

TEST_P(CudaOperations, MultiplyMatricesInEveryOrientation) {
  for (const bool transpose_a : {false, true}) {
    for (const bool transpose_b : {false, true}) {
      for (const float beta : {0.0f, 0.5f}) {
        const int m = between(1, 40), n = between(1, 40), k = between(1, 60);
        const int lda = (transpose_a ? m : k) + between(0, 3);
        const int ldb = (transpose_b ? k : n) + between(0, 3);
        const int ldc = n + between(0, 3);
        const auto a = random_floats(std::size_t(lda) * (transpose_a ? k : m));
        const auto b = random_floats(std::size_t(ldb) * (transpose_b ? n : k));
        const auto c = random_floats(std::size_t(ldc) * m);
        on_both([&](Device& device, int which) {
          device.gemm(transpose_a, transpose_b, m, n, k, 1.5f, a.floats(which), lda, b.floats(which), ldb,
                      beta, c.floats(which), ldc);
        });
        expect_near(c, "c", 1e-5f);
      }
    }
  }
}

TEST_P(CudaOperations, AddBiasesAndSumAlongBothSides) {
  for (const bool flag : {false, true}) {
    // At times so long that sums are cut in parts.
    const auto rows = std::size_t(between(1, flag ? 2000 : 40));
    const auto columns = std::size_t(between(1, flag ? 40 : 3000));
    const auto x = random_floats(rows * columns);
    const auto by_column = random_floats(columns);
    const auto by_row = random_floats(rows);
    on_both([&](Device& device, int which) {
      device.add_bias_to_columns(x.floats(which), by_column.floats(which), rows, columns, flag);
      device.add_bias_to_rows(x.floats(which), by_row.floats(which), rows, columns, !flag);
      device.sum_columns(by_column.floats(which), x.floats(which), rows, columns, flag);
      device.sum_rows(by_row.floats(which), x.floats(which), rows, columns, flag);
    });
    expect_near(x, "x");
    expect_near(by_column, "sums of columns", 1e-5f);
    expect_near(by_row, "sums of rows", 1e-5f);
  }
}

TEST_P(CudaOperations, TakePatchesAndPutThemBack) {
  ConvShape shape{between(1, 4), between(1, 5), 0, 0, between(1, 5)};
  shape.height = shape.kernel + between(0, 9);
  shape.width = shape.kernel + between(0, 9);
  const auto pixels = std::size_t(shape.channels) * shape.batch * shape.height * shape.width;
  const auto planes = random_floats(pixels);
  const auto patches = random_floats(shape.patch() * shape.positions());
  const auto back = random_floats(pixels);
  on_both([&](Device& device, int which) {
    device.im2col(patches.floats(which), planes.floats(which), shape);
    device.col2im(back.floats(which), patches.floats(which), shape);
  });
  expect_equal(patches, "patches");
  expect_near(back, "planes");
}

TEST_P(CudaOperations, PoolAndExchangePlanesAndRows) {
  const int channels = between(1, 6), batch = between(1, 6), height = between(2, 11), width = between(2, 11);
  const auto planes = std::size_t(channels) * std::size_t(batch);
  const auto outputs = planes * std::size_t(height / 2) * std::size_t(width / 2);
  const auto pixels = std::size_t(height / 2) * std::size_t(width / 2);
  const auto in = random_floats(planes * std::size_t(height) * std::size_t(width));
  const auto out = random_floats(outputs);
  const auto chosen = twin_of(std::vector<std::uint8_t>(outputs, 9));
  const auto rows = random_floats(outputs);
  const auto again = random_floats(outputs);
  const auto gradient = random_floats(planes * std::size_t(height) * std::size_t(width));
  on_both([&](Device& device, int which) {
    device.max_pool(out.floats(which), chosen.bytes(which), in.floats(which), planes, height, width);
    device.planes_to_rows(rows.floats(which), out.floats(which), channels, batch, pixels);
    device.rows_to_planes(again.floats(which), rows.floats(which), channels, batch, pixels);
    device.max_pool_backward(gradient.floats(which), again.floats(which), chosen.bytes(which), planes, height,
                             width);
    device.relu_backward(gradient.floats(which), in.floats(which), planes * std::size_t(height * width));
  });
  for (const auto* same : {&out, &chosen, &rows, &again, &gradient}) expect_equal(*same, "pooled");
  EXPECT_EQ(read<float>(out, kGpu), read<float>(again, kGpu));
}

TEST_P(CudaOperations, JudgeLogits) {
  const auto rows = std::size_t(between(1, 900));
  const int classes = between(2, 20);
  const auto logits = random_floats(rows * std::size_t(classes));
  const auto labels = random_labels(rows, classes);
  const auto gradient = random_floats(rows * std::size_t(classes));
  const auto loss = random_floats(1);
  const auto tally = twin_of(std::vector<Tally>{{1.5, 2, 3}});
  on_both([&](Device& device, int which) {
    device.cross_entropy(gradient.floats(which), loss.floats(which), logits.floats(which),
                         labels.labels(which), rows, classes, 1.0f / float(rows));
    for (int i = 0; i < 2; ++i) {
      device.evaluate(tally.tally(which), logits.floats(which), labels.labels(which), rows, classes);
    }
  });
  expect_near(gradient, "gradient");
  expect_near(loss, "loss", 1e-5f);
  const auto cpu = read<Tally>(tally, kCpu).front();
  const auto gpu = read<Tally>(tally, kGpu).front();
  EXPECT_EQ(cpu.right, gpu.right);
  EXPECT_EQ(gpu.images, std::int64_t(3 + 2 * rows));
  EXPECT_NEAR(cpu.loss, gpu.loss, 1e-5 * std::abs(cpu.loss));
}

TEST_P(CudaOperations, UpdateParameters) {
  const auto count = std::size_t(between(1, 5000));
  const auto gradients = random_floats(count);
  const auto norm = zeros(1);
  const auto sgd = random_floats(count);
  const auto velocity = zeros(count);
  const auto adam = random_floats(count);
  const auto mean = zeros(count);
  const auto square = zeros(count);
  on_both([&](Device& device, int which) {
    device.clip(gradients.floats(which), count, GetParam() % 2 ? 0.5f : 1e6f, norm.floats(which));
    for (int step = 1; step <= 3; ++step) {
      device.sgd(sgd.floats(which), gradients.floats(which), velocity.floats(which), count,
                 {.rate = 0.1f, .momentum = 0.9f, .weight_decay = 0.01f, .first = step == 1});
      device.adamw(adam.floats(which), gradients.floats(which), mean.floats(which), square.floats(which),
                   count, {.rate = 0.01f, .weight_decay = 0.1f, .step = step});
    }
    device.sgd(sgd.floats(which), gradients.floats(which), nullptr, count, {.rate = 0.1f});
  });
  expect_near(norm, "norm", 1e-5f);
  expect_near(gradients, "clipped");
  expect_near(velocity, "velocity", 1e-5f);
  expect_near(sgd, "sgd", 1e-5f);
  expect_near(square, "square", 1e-5f);
  expect_near(adam, "adamw", 1e-5f);
}

TEST_P(CudaOperations, FillAddScaleAndCopy) {
  const auto count = std::size_t(between(1, 70000));
  const auto x = random_floats(count);
  const auto y = random_floats(count);
  const auto copied = zeros(count);
  on_both([&](Device& device, int which) {
    device.add(x.floats(which), y.floats(which), count);
    device.scale(x.floats(which), 0.3f, count);
    device.copy(copied.floats(which), x.floats(which), count);
    device.fill(y.floats(which), 2.5f, count / 2);
    device.fill(y.floats(which), 9, 0);
  });
  for (const auto* same : {&x, &y, &copied}) expect_equal(*same, "floats");
  EXPECT_EQ(read<float>(copied, kGpu), read<float>(x, kGpu));
}

INSTANTIATE_TEST_SUITE_P(RandomShapes, CudaOperations, testing::Range(1, 7));

}  // namespace
