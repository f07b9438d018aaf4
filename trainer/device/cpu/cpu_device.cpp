#include "trainer/device/cpu/cpu_device.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <new>

#include "trainer/device/cpu/loops.hpp"

namespace trainer {
namespace {

using Clock = std::chrono::steady_clock;

class CpuDevice : public Device {
 public:
  CpuDevice(int index, Gemm gemm, std::string description)
      : index_(index), gemm_(gemm), description_(std::move(description)) {}

  DeviceKind kind() const override { return DeviceKind::cpu; }
  std::string name() const override { return "cpu:" + std::to_string(index_); }
  std::string description() const override { return description_; }
  std::string unique_id() const override { return ""; }

  Result<Memory> allocate(std::size_t bytes) override { return allocate_zeroed(bytes, false); }
  Result<Memory> allocate_host(std::size_t bytes) override { return allocate_zeroed(bytes, true); }
  void release(void* data, std::size_t bytes, bool) override {
    std::free(data);
    now_ -= bytes;
  }
  MemoryUse memory_use() const override { return {now_, peak_}; }

  void upload(void* to, const void* host, std::size_t bytes) override { std::memcpy(to, host, bytes); }
  void download(void* host, const void* from, std::size_t bytes) override { std::memcpy(host, from, bytes); }
  void copy(float* to, const float* from, std::size_t count) override {
    std::memcpy(to, from, count * sizeof(float));
  }
  void copy_from(float* to, Device&, const float* from, std::size_t count) override { copy(to, from, count); }

  Mark mark() override {
    auto mark = marks_made_++;
    marks_[mark % marks_.size()] = Clock::now();
    return mark;
  }
  Result<> wait(Mark) override { return {}; }
  double seconds(Mark from, Mark to) override {
    return std::chrono::duration<double>(marks_[to % marks_.size()] - marks_[from % marks_.size()]).count();
  }
  Result<> synchronize() override { return {}; }
  Result<> stage_out(void* host, const void* from, std::size_t bytes, Mark) override {
    std::memcpy(host, from, bytes);
    return {};
  }
  Result<> stage_in(void* to, const void* host, std::size_t bytes) override {
    std::memcpy(to, host, bytes);
    return {};
  }

  void gemm(bool transpose_a, bool transpose_b, int m, int n, int k, float alpha, const float* a, int lda,
            const float* b, int ldb, float beta, float* c, int ldc) override {
    gemm_(transpose_a, transpose_b, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
  }

  void add_bias_to_columns(float* x, const float* bias, std::size_t rows, std::size_t columns,
                           bool relu) override {
    for (std::size_t r = 0; r < rows; ++r) loops::add_row(x + r * columns, bias, columns, relu);
  }
  void add_bias_to_rows(float* x, const float* bias, std::size_t rows, std::size_t columns,
                        bool relu) override {
    for (std::size_t r = 0; r < rows; ++r) loops::add_constant(x + r * columns, bias[r], columns, relu);
  }
  void sum_columns(float* out, const float* x, std::size_t rows, std::size_t columns,
                   bool accumulate) override {
    if (!accumulate) std::memset(out, 0, columns * sizeof(float));
    for (std::size_t r = 0; r < rows; ++r) loops::add(out, x + r * columns, columns);
  }
  void sum_rows(float* out, const float* x, std::size_t rows, std::size_t columns, bool accumulate) override {
    for (std::size_t r = 0; r < rows; ++r) {
      out[r] = (accumulate ? out[r] : 0) + loops::sum(x + r * columns, columns);
    }
  }
  void relu_backward(float* gradient, const float* activation, std::size_t count) override {
    loops::relu_backward(gradient, activation, count);
  }

  void im2col(float* patches, const float* planes, const ConvShape& s) override {
    each_shift(s, [&](std::size_t row, std::size_t channel, int y_shift, int x_shift) {
      auto* to = patches + row * s.positions();
      const auto width = std::size_t(s.out_width());
      for (int image = 0; image < s.batch; ++image) {
        const auto* from = plane(planes, s, channel, image) + std::size_t(y_shift * s.width + x_shift);
        for (int y = 0; y < s.out_height(); ++y, to += width, from += s.width) {
          std::memcpy(to, from, width * sizeof(float));
        }
      }
    });
  }
  void col2im(float* planes, const float* patches, const ConvShape& s) override {
    std::memset(planes, 0,
                std::size_t(s.channels) * std::size_t(s.batch) * std::size_t(s.height) *
                    std::size_t(s.width) * sizeof(float));
    each_shift(s, [&](std::size_t row, std::size_t channel, int y_shift, int x_shift) {
      const auto* from = patches + row * s.positions();
      const auto width = std::size_t(s.out_width());
      for (int image = 0; image < s.batch; ++image) {
        auto* to = const_cast<float*>(plane(planes, s, channel, image)) + y_shift * s.width + x_shift;
        for (int y = 0; y < s.out_height(); ++y, from += width, to += s.width) {
          for (std::size_t x = 0; x < width; ++x) to[x] += from[x];
        }
      }
    });
  }
  void max_pool(float* out, std::uint8_t* chosen, const float* in, std::size_t planes, int height,
                int width) override {
    const auto rows = std::size_t(height / 2), columns = std::size_t(width / 2), stride = std::size_t(width);
    for (std::size_t p = 0; p < planes; ++p, in += std::size_t(height) * stride) {
      for (std::size_t y = 0; y < rows; ++y, out += columns, chosen += columns) {
        loops::pool_row(out, chosen, in + 2 * y * stride, in + (2 * y + 1) * stride, columns);
      }
    }
  }
  void max_pool_backward(float* in_gradient, const float* out_gradient, const std::uint8_t* chosen,
                         std::size_t planes, int height, int width) override {
    const auto rows = std::size_t(height / 2), columns = std::size_t(width / 2), stride = std::size_t(width);
    const auto size = std::size_t(height) * stride;
    if (height % 2 || width % 2) std::memset(in_gradient, 0, planes * size * sizeof(float));
    for (std::size_t p = 0; p < planes; ++p, in_gradient += size) {
      for (std::size_t y = 0; y < rows; ++y, out_gradient += columns, chosen += columns) {
        loops::pool_row_backward(in_gradient + 2 * y * stride, in_gradient + (2 * y + 1) * stride,
                                 out_gradient, chosen, columns);
      }
    }
  }
  void planes_to_rows(float* rows, const float* planes, int channels, int batch,
                      std::size_t pixels) override {
    exchange(rows, planes, std::size_t(channels), std::size_t(batch), pixels);
  }
  void rows_to_planes(float* planes, const float* rows, int channels, int batch,
                      std::size_t pixels) override {
    exchange(planes, rows, std::size_t(batch), std::size_t(channels), pixels);
  }

  void cross_entropy(float* gradient, float* loss, const float* logits, const std::int32_t* labels,
                     std::size_t rows, int classes, float scale) override {
    const auto columns = std::size_t(classes);
    float total = 0;
    for (std::size_t r = 0; r < rows; ++r) {
      const auto* in = logits + r * columns;
      auto* out = gradient + r * columns;
      const auto largest = *std::max_element(in, in + columns);
      float sum = 0;
      for (std::size_t c = 0; c < columns; ++c) sum += out[c] = std::exp(in[c] - largest);
      const auto label = std::size_t(labels[r]);
      total += std::log(sum) - (in[label] - largest);
      const auto factor = scale / sum;
      for (std::size_t c = 0; c < columns; ++c) out[c] *= factor;
      out[label] -= scale;
    }
    *loss += total * scale;
  }
  void evaluate(Tally* tally, const float* logits, const std::int32_t* labels, std::size_t rows,
                int classes) override {
    const auto columns = std::size_t(classes);
    for (std::size_t r = 0; r < rows; ++r) {
      const auto* in = logits + r * columns;
      const auto* largest = std::max_element(in, in + columns);
      double sum = 0;
      for (std::size_t c = 0; c < columns; ++c) sum += std::exp(double(in[c]) - double(*largest));
      tally->loss += std::log(sum) - (double(in[labels[r]]) - double(*largest));
      tally->right += largest - in == labels[r];
    }
    tally->images += std::int64_t(rows);
  }

  void fill(float* x, float value, std::size_t count) override { std::fill_n(x, count, value); }
  void add(float* x, const float* y, std::size_t count) override { loops::add(x, y, count); }
  void scale(float* x, float factor, std::size_t count) override { loops::scale(x, factor, count); }
  void clip(float* x, std::size_t count, float limit, float* norm) override {
    *norm = float(std::sqrt(loops::sum_of_squares(x, count)));
    auto factor = limit / (*norm + 1e-6f);
    if (factor < 1) loops::scale(x, factor, count);
  }
  void sgd(float* parameters, const float* gradients, float* velocity, std::size_t count,
           const SgdStep& step) override {
    loops::sgd(parameters, gradients, velocity, count, step);
  }
  void adamw(float* parameters, const float* gradients, float* mean, float* square, std::size_t count,
             const AdamStep& step) override {
    loops::adamw(parameters, gradients, mean, square, count, step);
  }

 private:
  // Cache lines begin where memory does. Never a null pointer, so that nothing is nothing.
  Result<Memory> allocate_zeroed(std::size_t bytes, bool on_host) {
    constexpr std::size_t kLine = 64;
    auto size = std::max(bytes, std::size_t(1));
    void* data =
        size > SIZE_MAX - kLine ? nullptr : std::aligned_alloc(kLine, (size + kLine - 1) / kLine * kLine);
    if (!data) return Error{Errc::failed, name() + ": no memory for " + std::to_string(bytes) + " bytes"};
    std::memset(data, 0, size);
    auto now = now_ += bytes;
    for (auto peak = peak_.load(); peak < now && !peak_.compare_exchange_weak(peak, now);) continue;
    return Memory(*this, data, bytes, on_host);
  }

  static const float* plane(const float* planes, const ConvShape& s, std::size_t channel, int image) {
    return planes + (channel * std::size_t(s.batch) + std::size_t(image)) * std::size_t(s.height) *
                        std::size_t(s.width);
  }
  template <class F>
  static void each_shift(const ConvShape& s, F call) {
    std::size_t row = 0;
    for (std::size_t channel = 0; channel < std::size_t(s.channels); ++channel) {
      for (int y = 0; y < s.kernel; ++y) {
        for (int x = 0; x < s.kernel; ++x) call(row++, channel, y, x);
      }
    }
  }
  // [outer][inner][pixel] to [inner][outer][pixel]
  static void exchange(float* to, const float* from, std::size_t outer, std::size_t inner,
                       std::size_t pixels) {
    for (std::size_t o = 0; o < outer; ++o) {
      for (std::size_t i = 0; i < inner; ++i) {
        std::memcpy(to + (i * outer + o) * pixels, from + (o * inner + i) * pixels, pixels * sizeof(float));
      }
    }
  }

  int index_;
  Gemm gemm_;
  std::string description_;
  std::atomic<std::size_t> now_{0}, peak_{0};
  std::array<Clock::time_point, 1024> marks_{};
  std::atomic<Mark> marks_made_{0};  // a reducer's thread may make some, too
};

}  // namespace

std::unique_ptr<Device> make_cpu_device(int index, Gemm gemm, std::string description) {
  return std::make_unique<CpuDevice>(index, gemm, std::move(description));
}

}  // namespace trainer
