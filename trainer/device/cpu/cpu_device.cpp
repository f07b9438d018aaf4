#include "trainer/device/cpu/cpu_device.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "trainer/device/cpu/loops.hpp"
#include "trainer/device/kernels.hpp"

namespace trainer {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kAlignment = 64;  // a cache line

class CpuDevice : public Device {
 public:
  CpuDevice(int index, Gemm gemm, std::string description)
      : name_("cpu:" + std::to_string(index)), description_(std::move(description)), gemm_(gemm) {}

  DeviceKind kind() const override { return DeviceKind::cpu; }
  std::string name() const override { return name_; }
  std::string description() const override { return description_; }
  std::string unique_id() const override { return {}; }

  Result<Memory> allocate(std::size_t bytes) override {
    auto memory = make(bytes, /*on_host=*/false);
    if (!memory) return memory;
    const std::size_t now = used_ += bytes;
    std::size_t peak = peak_;
    while (peak < now && !peak_.compare_exchange_weak(peak, now)) {
    }
    return memory;
  }
  Result<Memory> allocate_host(std::size_t bytes) override { return make(bytes, /*on_host=*/true); }
  void release(void* data, std::size_t bytes, bool on_host) override {
    std::free(data);
    if (!on_host) used_ -= bytes;
  }
  MemoryUse memory_use() const override { return {.now = used_, .peak = peak_}; }

  void upload(void* to, const void* host, std::size_t bytes) override { move(to, host, bytes); }
  void download(void* host, const void* from, std::size_t bytes) override { move(host, from, bytes); }
  void copy(float* to, const float* from, std::size_t count) override {
    move(to, from, count * sizeof(float));
  }
  void copy_from(float* to, Device&, const float* from, std::size_t count) override { copy(to, from, count); }

  Mark mark() override {
    const Mark mark = marks_++;
    made_[mark % made_.size()] = Clock::now();
    return mark;
  }
  Result<> wait(Mark) override { return {}; }
  double seconds(Mark from, Mark to) override {
    return std::chrono::duration<double>(made_[to % made_.size()] - made_[from % made_.size()]).count();
  }
  Result<> synchronize() override { return {}; }
  Result<> stage_out(void* host, const void* from, std::size_t bytes, Mark) override {
    move(host, from, bytes);
    return {};
  }
  Result<> stage_in(void* to, const void* host, std::size_t bytes) override {
    move(to, host, bytes);
    return {};
  }

  void gemm(bool transpose_a, bool transpose_b, int m, int n, int k, float alpha, const float* a, int lda,
            const float* b, int ldb, float beta, float* c, int ldc) override {
    gemm_(transpose_a, transpose_b, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
  }

  void add_bias_to_columns(float* x, const float* bias, std::size_t rows, std::size_t columns,
                           bool relu) override {
    for (std::size_t row = 0; row < rows; ++row) loops::add_biases(x + row * columns, bias, columns, relu);
  }
  void add_bias_to_rows(float* x, const float* bias, std::size_t rows, std::size_t columns,
                        bool relu) override {
    for (std::size_t row = 0; row < rows; ++row) loops::add_bias(x + row * columns, bias[row], columns, relu);
  }
  void sum_columns(float* out, const float* x, std::size_t rows, std::size_t columns,
                   bool accumulate) override {
    loops::sum_columns(out, x, rows, columns, accumulate);
  }
  void sum_rows(float* out, const float* x, std::size_t rows, std::size_t columns, bool accumulate) override {
    for (std::size_t row = 0; row < rows; ++row) {
      const float sum = loops::sum(x + row * columns, columns);
      out[row] = accumulate ? out[row] + sum : sum;
    }
  }
  void relu_backward(float* gradient, const float* activation, std::size_t count) override {
    loops::relu_backward(gradient, activation, count);
  }

  void im2col(float* patches, const float* planes, const ConvShape& shape) override {
    loops::im2col(patches, planes, shape);
  }
  void col2im(float* planes, const float* patches, const ConvShape& shape) override {
    loops::col2im(planes, patches, shape);
  }
  void max_pool(float* out, std::uint8_t* chosen, const float* in, std::size_t planes, int height,
                int width) override {
    loops::max_pool(out, chosen, in, planes, std::size_t(height), std::size_t(width));
  }
  void max_pool_backward(float* in_gradient, const float* out_gradient, const std::uint8_t* chosen,
                         std::size_t planes, int height, int width) override {
    loops::max_pool_backward(in_gradient, out_gradient, chosen, planes, std::size_t(height),
                             std::size_t(width));
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
    double sum = 0;
    const kernels::CrossEntropy each{gradient, nullptr, logits, labels, classes, scale};
    for (std::size_t row = 0; row < rows; ++row) sum += double(each.loss_of(row));
    *loss += float(sum * double(scale));
  }
  void evaluate(Tally* tally, const float* logits, const std::int32_t* labels, std::size_t rows,
                int classes) override {
    for (std::size_t row = 0; row < rows; ++row) {
      const float* in = logits + row * std::size_t(classes);
      const kernels::RowLoss loss(in, classes);
      tally->loss += double(loss.of(in[labels[row]]));
      tally->right += loss.first == labels[row];
    }
    tally->images += std::int64_t(rows);
  }

  void fill(float* x, float value, std::size_t count) override { std::fill_n(x, count, value); }
  void add(float* x, const float* y, std::size_t count) override { loops::add(x, y, count); }
  void scale(float* x, float factor, std::size_t count) override { loops::scale(x, factor, count); }
  void clip(float* x, std::size_t count, float limit, float* norm) override {
    double part = loops::sum_of_squares(x, count);
    kernels::ClipFactor{&part, 1, limit, norm}(0);
    if (part != 1) loops::scale(x, float(part), count);
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
  Result<Memory> make(std::size_t bytes, bool on_host) {
    // Linux promises more than it has, and ends the process that uses it.
    const std::size_t installed =
        std::size_t(::sysconf(_SC_PHYS_PAGES)) * std::size_t(::sysconf(_SC_PAGESIZE));
    void* data = nullptr;
    if (bytes > installed || ::posix_memalign(&data, kAlignment, std::max(bytes, kAlignment)) != 0) {
      return Error{Errc::failed, name_ + ": no room for " + std::to_string(bytes) + " bytes"};
    }
    std::memset(data, 0, bytes);
    return Memory(*this, data, bytes, on_host);
  }

  static void move(void* to, const void* from, std::size_t bytes) {
    if (bytes > 0 && to != from) std::memmove(to, from, bytes);
  }

  // [outer][inner][pixel] to [inner][outer][pixel]
  static void exchange(float* to, const float* from, std::size_t outer, std::size_t inner,
                       std::size_t pixels) {
    for (std::size_t i = 0; i < inner; ++i) {
      for (std::size_t o = 0; o < outer; ++o) {
        std::memcpy(to + (i * outer + o) * pixels, from + (o * inner + i) * pixels, pixels * sizeof(float));
      }
    }
  }

  std::string name_;
  std::string description_;
  Gemm gemm_;
  std::atomic<Mark> marks_ = 0;
  std::array<Clock::time_point, 1024> made_{};  // a ring, by mark
  std::atomic<std::size_t> used_ = 0;
  std::atomic<std::size_t> peak_ = 0;
};

}  // namespace

std::unique_ptr<Device> make_cpu_device(int index, Gemm gemm, std::string description) {
  return std::make_unique<CpuDevice>(index, gemm, std::move(description));
}

}  // namespace trainer
