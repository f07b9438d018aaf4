#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "../random_floats.hpp"
#include "trainer/device/cpu/cpu_device.hpp"
#include "trainer/device/kernels.hpp"

namespace trainer {
namespace {

using Bytes = std::vector<std::uint8_t>;

std::unique_ptr<Device> cpu() { return make_cpu_device(0, plain_gemm, "plain"); }

template <class F>
void each(std::size_t count, const F& functor) {
  for (std::size_t i = 0; i < count; ++i) functor(i);
}

void expect_near(const Floats& one, const Floats& other, float tolerance) {
  ASSERT_EQ(one.size(), other.size());
  for (std::size_t i = 0; i < one.size(); ++i) {
    ASSERT_NEAR(one[i], other[i], tolerance * (1 + std::abs(other[i]))) << "at " << i;
  }
}

// Odd ones, ones below and above the lanes of a vector, and whole ones.
const std::vector<std::pair<std::size_t, std::size_t>> kShapes = {{1, 1},   {3, 7},    {64, 10}, {5, 32},
                                                                  {33, 33}, {64, 512}, {2, 1000}};

TEST(Kernels, AddBiasesAsTheCpuDoes) {
  for (auto [rows, columns] : kShapes) {
    for (bool relu : {false, true}) {
      Floats x = random_floats(rows * columns, 1), y = x;
      const Floats bias = random_floats(std::max(rows, columns), 2);
      cpu()->add_bias_to_columns(x.data(), bias.data(), rows, columns, relu);
      each(y.size(), kernels::AddBias{y.data(), bias.data(), columns, /*by_row=*/false, relu});
      EXPECT_EQ(x, y);
      cpu()->add_bias_to_rows(x.data(), bias.data(), rows, columns, relu);
      each(y.size(), kernels::AddBias{y.data(), bias.data(), columns, /*by_row=*/true, relu});
      EXPECT_EQ(x, y);
    }
  }
}

TEST(Kernels, LetNanLiveThroughRelu) {
  for (bool by_functor : {false, true}) {
    Floats x(40, std::numeric_limits<float>::quiet_NaN());
    const Floats bias(40, 1.0f);
    if (by_functor) {
      each(40, kernels::AddBias{x.data(), bias.data(), 40, /*by_row=*/false, /*relu=*/true});
    } else {
      cpu()->add_bias_to_columns(x.data(), bias.data(), 1, 40, /*relu=*/true);
    }
    for (float value : x) EXPECT_TRUE(std::isnan(value));
  }
}

TEST(Kernels, SumAsTheCpuDoes) {
  for (auto [rows, columns] : kShapes) {
    const Floats x = random_floats(rows * columns, 3);
    for (bool accumulate : {false, true}) {
      Floats one(columns, 0.5f), other(columns, 0.5f);
      cpu()->sum_columns(one.data(), x.data(), rows, columns, accumulate);
      each(columns, kernels::Sum{other.data(), x.data(), rows, 1, columns, accumulate});
      expect_near(one, other, 1e-5f);
      one.assign(rows, 0.5f);
      other.assign(rows, 0.5f);
      cpu()->sum_rows(one.data(), x.data(), rows, columns, accumulate);
      each(rows, kernels::Sum{other.data(), x.data(), columns, columns, 1, accumulate});
      expect_near(one, other, 1e-4f);

      // Cut into parts, then the parts.
      const std::size_t parts = 7;
      Floats partial(rows * parts), whole(rows, 0.5f);
      each(rows * parts, kernels::PartialSum{partial.data(), x.data(), rows, columns, columns, 1, parts});
      each(rows, kernels::Sum{whole.data(), partial.data(), parts, parts, 1, accumulate});
      expect_near(whole, other, 1e-4f);
      partial.assign(columns * parts, 0);
      whole.assign(columns, 0.5f);
      one.assign(columns, 0.5f);
      cpu()->sum_columns(one.data(), x.data(), rows, columns, accumulate);
      each(columns * parts, kernels::PartialSum{partial.data(), x.data(), columns, rows, 1, columns, parts});
      each(columns, kernels::Sum{whole.data(), partial.data(), parts, parts, 1, accumulate});
      expect_near(whole, one, 1e-4f);
    }
  }
}

// Sums whose bits depend on where the memory lies would make equal runs differ.
TEST(CpuDevice, SumsTheSameWhereverTheMemoryLies) {
  for (auto [rows, columns] : kShapes) {
    const Floats x = random_floats(rows * columns, 4);
    Floats by_columns, by_rows;
    double norm = 0;
    for (std::size_t shift = 0; shift < 17; ++shift) {
      Floats room(x.size() + shift);
      std::copy(x.begin(), x.end(), room.begin() + std::ptrdiff_t(shift));
      Floats c(columns), r(rows);
      float n = 0;
      auto device = cpu();
      device->sum_columns(c.data(), room.data() + shift, rows, columns, false);
      device->sum_rows(r.data(), room.data() + shift, rows, columns, false);
      device->clip(room.data() + shift, x.size(), 1e9f, &n);
      if (shift == 0) {
        by_columns = c, by_rows = r, norm = double(n);
      }
      EXPECT_EQ(c, by_columns);
      EXPECT_EQ(r, by_rows);
      EXPECT_EQ(double(n), norm);
    }
  }
}

TEST(Kernels, GoBackThroughReluAsTheCpuDoes) {
  Floats x = random_floats(1001, 5), y = x;
  Floats activation = random_floats(1001, 6);
  for (std::size_t i = 0; i < activation.size(); i += 3) activation[i] = 0;
  cpu()->relu_backward(x.data(), activation.data(), x.size());
  each(y.size(), kernels::ReluBackward{y.data(), activation.data()});
  EXPECT_EQ(x, y);
  EXPECT_EQ(x[0], 0);
}

const std::vector<ConvShape> kConvolutions = {{1, 1, 5, 5, 5}, {1, 3, 28, 28, 5}, {20, 2, 12, 12, 5},
                                              {3, 2, 9, 7, 3}, {2, 1, 6, 21, 4},  {3, 4, 16, 17, 5}};

TEST(Kernels, MakePatchesAsTheCpuDoes) {
  for (const ConvShape& shape : kConvolutions) {
    const std::size_t pixels = std::size_t(shape.channels * shape.batch * shape.height * shape.width);
    const Floats planes = random_floats(pixels, 7);
    Floats x(shape.patch() * shape.positions()), y(x.size());
    cpu()->im2col(x.data(), planes.data(), shape);
    each(y.size(), kernels::Im2Col{y.data(), planes.data(), shape});
    EXPECT_EQ(x, y);

    Floats back(pixels, 9.0f), gathered(pixels, 9.0f);
    const Floats patches = random_floats(x.size(), 8);
    cpu()->col2im(back.data(), patches.data(), shape);
    each(pixels, kernels::Col2Im{gathered.data(), patches.data(), shape});
    expect_near(back, gathered, 1e-5f);

    // Adjoint: <im2col(planes), patches> = <planes, col2im(patches)>.
    double one = 0, other = 0;
    for (std::size_t i = 0; i < x.size(); ++i) one += double(x[i]) * double(patches[i]);
    for (std::size_t i = 0; i < pixels; ++i) other += double(planes[i]) * double(back[i]);
    EXPECT_NEAR(one, other, 1e-3);
  }
}

TEST(Kernels, PoolAsTheCpuDoes) {
  for (auto [height, width] : std::vector<std::pair<int, int>>{{24, 24}, {8, 8}, {5, 7}, {2, 3}, {9, 70}}) {
    const std::size_t planes = 3, in_size = planes * std::size_t(height * width);
    const std::size_t out_size = planes * std::size_t((height / 2) * (width / 2));
    Floats in = random_floats(in_size, 9);
    for (float& value : in) value = std::round(value * 4);  // so that there are equals
    Floats x(out_size), y(out_size);
    Bytes chosen_x(out_size), chosen_y(out_size);
    cpu()->max_pool(x.data(), chosen_x.data(), in.data(), planes, height, width);
    each(out_size,
         kernels::MaxPool{y.data(), chosen_y.data(), in.data(), std::size_t(height), std::size_t(width)});
    EXPECT_EQ(x, y);
    EXPECT_EQ(chosen_x, chosen_y);

    const Floats gradient = random_floats(out_size, 10);
    Floats back_x(in_size, 5.0f), back_y(in_size, 5.0f);
    cpu()->max_pool_backward(back_x.data(), gradient.data(), chosen_x.data(), planes, height, width);
    each(in_size, kernels::MaxPoolBackward{back_y.data(), gradient.data(), chosen_x.data(),
                                           std::size_t(height), std::size_t(width)});
    EXPECT_EQ(back_x, back_y);
  }
}

TEST(Kernels, ExchangePlanesAndRowsAsTheCpuDoes) {
  const int channels = 5, batch = 3;
  const std::size_t pixels = 7;
  const Floats planes = random_floats(channels * batch * pixels, 11);
  Floats rows(planes.size()), by_functor(planes.size()), back(planes.size());
  cpu()->planes_to_rows(rows.data(), planes.data(), channels, batch, pixels);
  each(planes.size(), kernels::Exchange{by_functor.data(), planes.data(), channels, batch, pixels});
  EXPECT_EQ(rows, by_functor);
  EXPECT_EQ(rows[pixels], planes[batch * pixels]);  // channel 1 of image 0
  cpu()->rows_to_planes(back.data(), rows.data(), channels, batch, pixels);
  EXPECT_EQ(back, planes);
  each(planes.size(), kernels::Exchange{by_functor.data(), rows.data(), batch, channels, pixels});
  EXPECT_EQ(by_functor, planes);
}

TEST(Kernels, ComputeLossesAsTheCpuDoes) {
  const std::size_t rows = 37;
  for (int classes : {1, 2, 10, 100}) {
    Floats logits = random_floats(rows * std::size_t(classes), 12);
    for (float& value : logits) value *= 30;
    std::vector<std::int32_t> labels(rows);
    for (std::size_t i = 0; i < rows; ++i) labels[i] = std::int32_t(i * 7) % classes;

    Floats x(logits.size()), y(logits.size()), losses(rows);
    float loss = 0.25f;
    cpu()->cross_entropy(x.data(), &loss, logits.data(), labels.data(), rows, classes, 0.125f);
    each(rows, kernels::CrossEntropy{y.data(), losses.data(), logits.data(), labels.data(), classes, 0.125f});
    EXPECT_EQ(x, y);
    double sum = 0.25;
    for (float each_loss : losses) sum += double(each_loss);
    EXPECT_NEAR(double(loss), sum, 1e-5 * sum);

    Tally one{.loss = 1, .right = 2, .images = 3}, other = one;
    Floats scratch(2 * rows);
    cpu()->evaluate(&one, logits.data(), labels.data(), rows, classes);
    each(rows, kernels::Evaluate{scratch.data(), logits.data(), labels.data(), rows, classes});
    each(1, kernels::AddToTally{&other, scratch.data(), rows});
    EXPECT_NEAR(one.loss, other.loss, 1e-9 * std::abs(other.loss));
    EXPECT_EQ(one.right, other.right);
    EXPECT_EQ(one.images, std::int64_t(rows) + 3);
    EXPECT_EQ(other.images, one.images);
  }
}

TEST(CpuDevice, CountsTheFirstOfEqualLogitsAlone) {
  const Floats logits = {1, 1, 0};
  const std::int32_t first = 0, second = 1;
  Tally tally;
  cpu()->evaluate(&tally, logits.data(), &first, 1, 3);
  EXPECT_EQ(tally.right, 1);
  cpu()->evaluate(&tally, logits.data(), &second, 1, 3);
  EXPECT_EQ(tally.right, 1);
  EXPECT_NEAR(tally.loss, 2 * std::log(2 + std::exp(-1.0)), 1e-6);
}

TEST(Kernels, FillAddAndScaleAsTheCpuDoes) {
  for (std::size_t count : {1u, 31u, 1000u}) {
    Floats x(count), y(count);
    const Floats z = random_floats(count, 13);
    auto device = cpu();
    device->fill(x.data(), 3, count);
    device->add(x.data(), z.data(), count);
    device->scale(x.data(), 0.3f, count);
    each(count, kernels::Fill{y.data(), 3});
    each(count, kernels::Add{y.data(), z.data()});
    each(count, kernels::Scale{y.data(), 0.3f});
    EXPECT_EQ(x, y);
    EXPECT_FLOAT_EQ(x[0], (3 + z[0]) * 0.3f);
  }
}

TEST(Kernels, ClipAsTheCpuDoes) {
  for (float limit : {0.5f, 1e6f}) {
    Floats x = random_floats(3001, 14), y = x;
    const Floats before = x;
    float norm_x = 0, norm_y = 0;
    cpu()->clip(x.data(), x.size(), limit, &norm_x);
    const std::size_t count = 64;
    std::vector<double> parts(count);
    each(count, kernels::SquaredParts{parts.data(), y.data(), y.size(), count});
    kernels::ClipFactor{parts.data(), count, limit, &norm_y}(0);
    each(y.size(), kernels::ScaleBy{y.data(), parts.data()});
    EXPECT_FLOAT_EQ(norm_x, norm_y);
    expect_near(x, y, 1e-6f);
    double squares = 0;
    for (float value : before) squares += double(value) * double(value);
    EXPECT_NEAR(double(norm_x), std::sqrt(squares), 1e-4);
    if (limit > 1000) {
      EXPECT_EQ(x, before);
    } else {
      EXPECT_NEAR(double(x[5]), double(before[5]) * 0.5 / std::sqrt(squares), 1e-6);
    }
  }
}

TEST(Kernels, ClipKeepsNan) {
  for (bool by_functor : {false, true}) {
    Floats x = {1, std::numeric_limits<float>::quiet_NaN()};
    float norm = 0;
    if (by_functor) {
      double part = 0;
      kernels::SquaredParts{&part, x.data(), 2, 1}(0);
      kernels::ClipFactor{&part, 1, 1, &norm}(0);
      each(2, kernels::ScaleBy{x.data(), &part});
    } else {
      cpu()->clip(x.data(), 2, 1, &norm);
    }
    EXPECT_TRUE(std::isnan(norm));
    EXPECT_TRUE(std::isnan(x[0]));
  }
}

TEST(Kernels, UpdateAsTheCpuDoes) {
  const std::size_t count = 1003;
  const Floats gradient = random_floats(count, 15);
  for (float momentum : {0.0f, 0.9f}) {
    for (float decay : {0.0f, 0.1f}) {
      Floats x = random_floats(count, 16), y = x, velocity_x(count, 7.0f), velocity_y = velocity_x;
      for (bool first : {true, false}) {
        const SgdStep step{.rate = 0.1f, .momentum = momentum, .weight_decay = decay, .first = first};
        cpu()->sgd(x.data(), gradient.data(), momentum > 0 ? velocity_x.data() : nullptr, count, step);
        each(count, kernels::Sgd{y.data(), gradient.data(), velocity_y.data(), step});
        expect_near(x, y, 1e-6f);
        expect_near(velocity_x, velocity_y, 1e-6f);
      }
    }
  }
  Floats x = random_floats(count, 17), y = x, mean_x(count), mean_y(count), square_x(count), square_y(count);
  for (std::int64_t number = 1; number < 4; ++number) {
    const AdamStep step{.rate = 0.1f, .weight_decay = 0.1f, .step = number};
    cpu()->adamw(x.data(), gradient.data(), mean_x.data(), square_x.data(), count, step);
    each(count, kernels::make_adamw(y.data(), gradient.data(), mean_y.data(), square_y.data(), step));
    expect_near(x, y, 1e-6f);
    expect_near(mean_x, mean_y, 1e-6f);
    expect_near(square_x, square_y, 1e-6f);
  }
}

TEST(CpuDevice, CountsItsMemoryButNotTheHosts) {
  auto device = cpu();
  {
    auto one = device->allocate(1000);
    auto other = device->allocate(500);
    auto host = device->allocate_host(4000);
    ASSERT_TRUE(one && other && host);
    EXPECT_EQ(device->memory_use().now, 1500u);
    for (std::size_t i = 0; i < 250; ++i) EXPECT_EQ(one->floats()[i], 0);
  }
  EXPECT_EQ(device->memory_use().now, 0u);
  EXPECT_EQ(device->memory_use().peak, 1500u);
}

TEST(CpuDevice, RefusesMoreMemoryThanThereIs) {
  auto device = cpu();
  auto memory = device->allocate(std::size_t(1) << 62);
  ASSERT_FALSE(memory);
  EXPECT_EQ(memory.error().text, "cpu:0: no room for 4611686018427387904 bytes");
  EXPECT_EQ(device->memory_use().peak, 0u);
}

}  // namespace
}  // namespace trainer
