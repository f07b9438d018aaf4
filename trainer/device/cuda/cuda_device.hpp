// A GPU as a Device. The lane is one stream; a second one carries what stage_out and stage_in copy for
// another thread. Matrix products are cuBLAS's in plain floats (no TF32), with a workspace of their own, so
// that the same calls give the same bits; all else are the functors of kernels.hpp (operations.cu).
//
// While something else can hold up the lane (NCCL waiting for a peer), a watch is asked again and again for
// as long as any thread waits here; so no wait for this device outlasts the watch's patience.
#pragma once

#include <cublas_v2.h>

#include <array>
#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "trainer/device/cuda/runtime.hpp"
#include "trainer/device/device.hpp"

namespace trainer::cuda {

class CudaDevice : public Device {
 public:
  // How long the wait has lasted so far; an Error ends it and is the device's fault from then on.
  using Watch = std::function<Result<>(std::chrono::milliseconds waited)>;

  static Result<std::unique_ptr<CudaDevice>> open(int ordinal);
  ~CudaDevice() override;

  DeviceKind kind() const override { return DeviceKind::cuda; }
  std::string name() const override { return "cuda:" + std::to_string(ordinal_); }
  std::string description() const override { return description_; }
  std::string unique_id() const override { return unique_id_; }

  Result<Memory> allocate(std::size_t bytes) override;
  Result<Memory> allocate_host(std::size_t bytes) override;
  void release(void* data, std::size_t bytes, bool on_host) override;
  MemoryUse memory_use() const override;

  void upload(void* to, const void* host, std::size_t bytes) override;
  void download(void* host, const void* from, std::size_t bytes) override;
  void copy(float* to, const float* from, std::size_t count) override;
  void copy_from(float* to, Device& other, const float* from, std::size_t count) override;

  Mark mark() override;
  Result<> wait(Mark mark) override;
  double seconds(Mark from, Mark to) override;
  Result<> synchronize() override;
  Result<> stage_out(void* host, const void* from, std::size_t bytes, Mark after) override;
  Result<> stage_in(void* to, const void* host, std::size_t bytes) override;

  void gemm(bool transpose_a, bool transpose_b, int m, int n, int k, float alpha, const float* a, int lda,
            const float* b, int ldb, float beta, float* c, int ldc) override;

  void add_bias_to_columns(float* x, const float* bias, std::size_t rows, std::size_t columns,
                           bool relu) override;
  void add_bias_to_rows(float* x, const float* bias, std::size_t rows, std::size_t columns,
                        bool relu) override;
  void sum_columns(float* out, const float* x, std::size_t rows, std::size_t columns,
                   bool accumulate) override;
  void sum_rows(float* out, const float* x, std::size_t rows, std::size_t columns, bool accumulate) override;
  void relu_backward(float* gradient, const float* activation, std::size_t count) override;
  void im2col(float* patches, const float* planes, const ConvShape& shape) override;
  void col2im(float* planes, const float* patches, const ConvShape& shape) override;
  void max_pool(float* out, std::uint8_t* chosen, const float* in, std::size_t planes, int height,
                int width) override;
  void max_pool_backward(float* in_gradient, const float* out_gradient, const std::uint8_t* chosen,
                         std::size_t planes, int height, int width) override;
  void planes_to_rows(float* rows, const float* planes, int channels, int batch, std::size_t pixels) override;
  void rows_to_planes(float* planes, const float* rows, int channels, int batch, std::size_t pixels) override;
  void cross_entropy(float* gradient, float* loss, const float* logits, const std::int32_t* labels,
                     std::size_t rows, int classes, float scale) override;
  void evaluate(Tally* tally, const float* logits, const std::int32_t* labels, std::size_t rows,
                int classes) override;
  void fill(float* x, float value, std::size_t count) override;
  void add(float* x, const float* y, std::size_t count) override;
  void scale(float* x, float factor, std::size_t count) override;
  void clip(float* x, std::size_t count, float limit, float* norm) override;
  void sgd(float* parameters, const float* gradients, float* velocity, std::size_t count,
           const SgdStep& step) override;
  void adamw(float* parameters, const float* gradients, float* mean, float* square, std::size_t count,
             const AdamStep& step) override;

  // For what else works on this device.
  int ordinal() const { return ordinal_; }
  cudaStream_t lane() const { return lane_.get(); }
  void use();                                     // makes it the calling thread's current device
  void fail(Error fault);                         // kept, unless there is one already
  bool keep(cudaError_t code, const char* call);  // the same for a failed call; true if it is none
  Result<> wait_for(cudaEvent_t event);           // of this device, with the watch
  void set_watch(Watch watch);                    // an empty one: none

 private:
  explicit CudaDevice(int ordinal) : ordinal_(ordinal) {}
  Result<> prepare();
  Result<> fault() const;
  std::string out_of_memory(std::size_t bytes, cudaError_t code) const;
  template <class F>
  void each(std::size_t count, F functor);  // operations.cu
  // Sums as kernels.hpp has them; long ones in two parts.
  void sum(float* out, const float* x, std::size_t outputs, std::size_t length, std::size_t stride,
           std::size_t step, bool accumulate);
  // For one operation, which may not assume that it holds what an earlier one left there.
  float* scratch(std::size_t floats);

  static constexpr std::size_t kMarks = 1024;

  int ordinal_;
  std::string description_;
  std::string unique_id_;
  Stream lane_;
  Stream staging_;
  std::array<Event, kMarks> marks_;
  std::atomic<Mark> made_{0};
  Event staged_;
  cublasHandle_t blas_ = nullptr;
  void* workspace_ = nullptr;
  float* scratch_ = nullptr;
  std::size_t scratch_floats_ = 0;

  mutable std::mutex mutex_;  // of what follows
  MemoryUse use_;
  std::optional<Error> fault_;
  std::shared_ptr<const Watch> watch_;
};

}  // namespace trainer::cuda
