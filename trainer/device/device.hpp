// One device that a rank computes on: its memory, its arithmetic and the order in which both happen.
//
// All work of a device is queued on one lane and done in that order; the calls return at once on a GPU and
// when done on a CPU. So the network, the optimizer and the loop are written once. A call cannot fail where
// it is made: the first fault is kept and synchronize() returns it.
//
// Matrices are row-major floats. Pointers are device memory of this device unless a name says `host`.
// Images of convolutions lie as [channel][image][row][column] ("planes"), so that a whole batch is one
// matrix product; dense layers take [image][feature] ("rows").
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <string>

#include "dlaunch/result.hpp"

namespace trainer {

using dlaunch::Errc;
using dlaunch::Error;
using dlaunch::Result;

enum class DeviceKind { cpu, cuda };

class Device;

// Memory of a device, or of the host where the device reads it directly (pinned). Zeroed when made; given
// back when destroyed, which the device must outlive.
class Memory {
 public:
  Memory() = default;
  Memory(Device& device, void* data, std::size_t bytes, bool on_host)
      : device_(&device), data_(data), bytes_(bytes), on_host_(on_host) {}
  Memory(Memory&& other) noexcept;
  Memory& operator=(Memory&& other) noexcept;
  ~Memory();

  void* data() const { return data_; }
  float* floats() const { return static_cast<float*>(data_); }
  std::size_t bytes() const { return bytes_; }

 private:
  Device* device_ = nullptr;
  void* data_ = nullptr;
  std::size_t bytes_ = 0;
  bool on_host_ = false;
};

// A square kernel moved over planes with stride 1 and no border, as the layers here need it.
struct ConvShape {
  int channels = 0;  // of the input
  int batch = 0;
  int height = 0;  // of the input
  int width = 0;
  int kernel = 0;
  int out_height() const { return height - kernel + 1; }
  int out_width() const { return width - kernel + 1; }
  std::size_t patch() const {
    return std::size_t(channels) * kernel * kernel;
  }  // rows of the matrix of patches
  std::size_t positions() const { return std::size_t(batch) * out_height() * out_width(); }  // its columns
};

// What an evaluation adds up, in device memory.
struct Tally {
  double loss = 0;  // sum over the images
  std::int64_t right = 0;
  std::int64_t images = 0;
};

struct SgdStep {
  float rate = 0;
  float momentum = 0;
  float weight_decay = 0;
  bool first = false;  // no velocity yet: it becomes the gradient, as in PyTorch
};

struct AdamStep {  // AdamW: the decay is not part of the gradient
  float rate = 0;
  float beta1 = 0.9f;
  float beta2 = 0.999f;
  float epsilon = 1e-8f;
  float weight_decay = 0;
  std::int64_t step = 1;  // counted from 1, for the bias corrections
};

struct MemoryUse {
  std::size_t now = 0;   // bytes allocated on the device by this process
  std::size_t peak = 0;  // the most there were
};

// A point on the lane: what was queued before it. Valid until the device has made 1024 more.
using Mark = std::uint64_t;

class Device {
 public:
  virtual ~Device() = default;

  virtual DeviceKind kind() const = 0;
  virtual std::string name() const = 0;         // "cpu:0", "cuda:1"
  virtual std::string description() const = 0;  // "OpenBLAS 0.3.21 SkylakeX", "NVIDIA H200, 141 GB"
  virtual std::string unique_id() const = 0;    // a GPU's UUID, the same in every process; empty for a CPU
  bool host_reads_it() const { return kind() == DeviceKind::cpu; }  // is device memory plain memory?

  virtual Result<Memory> allocate(std::size_t bytes) = 0;
  virtual Result<Memory> allocate_host(std::size_t bytes) = 0;
  virtual void release(void* data, std::size_t bytes, bool on_host) = 0;  // for ~Memory alone
  virtual MemoryUse memory_use() const = 0;

  // Copies on the lane. Host memory must stay as it is until synchronize() or a wait for a later mark.
  virtual void upload(void* to, const void* host, std::size_t bytes) = 0;
  virtual void download(void* host, const void* from, std::size_t bytes) = 0;
  virtual void copy(float* to, const float* from, std::size_t count) = 0;
  // From another device of this process and of the same kind, after what is queued there.
  virtual void copy_from(float* to, Device& other, const float* from, std::size_t count) = 0;

  virtual Mark mark() = 0;
  virtual Result<> wait(Mark mark) = 0;  // until the lane is past it; any thread may
  // What the lane took from one mark to a later one, in seconds; it must be past both.
  virtual double seconds(Mark from, Mark to) = 0;
  virtual Result<> synchronize() = 0;  // until the lane is empty
  // For a thread that reduces gradients beside the lane: device to host once the lane is past `after`, and
  // back; both return when the bytes are there. What the lane is given later sees them.
  virtual Result<> stage_out(void* host, const void* from, std::size_t bytes, Mark after) = 0;
  virtual Result<> stage_in(void* to, const void* host, std::size_t bytes) = 0;

  // c = alpha op(a) op(b) + beta c, where op transposes if told to; c is m x n, the inner size is k.
  // lda, ldb, ldc: floats from one row to the next.
  virtual void gemm(bool transpose_a, bool transpose_b, int m, int n, int k, float alpha, const float* a,
                    int lda, const float* b, int ldb, float beta, float* c, int ldc) = 0;

  // x[r][c] += bias[c], or bias[r]; then max(0, x) if `relu`.
  virtual void add_bias_to_columns(float* x, const float* bias, std::size_t rows, std::size_t columns,
                                   bool relu) = 0;
  virtual void add_bias_to_rows(float* x, const float* bias, std::size_t rows, std::size_t columns,
                                bool relu) = 0;
  // out[c] (or out[r]) = the sum, added to what is there if `accumulate`. The order of addition depends on
  // the shape alone.
  virtual void sum_columns(float* out, const float* x, std::size_t rows, std::size_t columns,
                           bool accumulate) = 0;
  virtual void sum_rows(float* out, const float* x, std::size_t rows, std::size_t columns,
                        bool accumulate) = 0;
  virtual void relu_backward(float* gradient, const float* activation, std::size_t count) = 0;  // in place

  // Patches: [channel][ky][kx] x [image][y][x]. The inverse adds up what overlaps (it does not accumulate).
  virtual void im2col(float* patches, const float* planes, const ConvShape& shape) = 0;
  virtual void col2im(float* planes, const float* patches, const ConvShape& shape) = 0;
  // Windows of 2 x 2 over `planes` planes of height x width (odd ends are dropped); `chosen`: which of the 4,
  // the first of equals, one byte per output.
  virtual void max_pool(float* out, std::uint8_t* chosen, const float* in, std::size_t planes, int height,
                        int width) = 0;
  virtual void max_pool_backward(float* in_gradient, const float* out_gradient, const std::uint8_t* chosen,
                                 std::size_t planes, int height, int width) = 0;
  // [channel][image][pixel] <-> [image][channel][pixel]
  virtual void planes_to_rows(float* rows, const float* planes, int channels, int batch,
                              std::size_t pixels) = 0;
  virtual void rows_to_planes(float* planes, const float* rows, int channels, int batch,
                              std::size_t pixels) = 0;

  // Softmax and cross entropy over rows of logits: gradient = (softmax - onehot) * scale, and the sum of the
  // rows' losses times `scale` is added to *loss.
  virtual void cross_entropy(float* gradient, float* loss, const float* logits, const std::int32_t* labels,
                             std::size_t rows, int classes, float scale) = 0;
  // Adds the rows' losses, how many are right (the first largest logit counts) and their number to *tally.
  virtual void evaluate(Tally* tally, const float* logits, const std::int32_t* labels, std::size_t rows,
                        int classes) = 0;

  virtual void fill(float* x, float value, std::size_t count) = 0;
  virtual void add(float* x, const float* y, std::size_t count) = 0;  // x += y
  virtual void scale(float* x, float factor, std::size_t count) = 0;
  // Scales x so that its Euclidean norm is at most `limit`, as torch.nn.utils.clip_grad_norm_ does; *norm is
  // what it was. The order of addition depends on the count alone.
  virtual void clip(float* x, std::size_t count, float limit, float* norm) = 0;

  // PyTorch's formulas. velocity is not touched without momentum and may then be null.
  virtual void sgd(float* parameters, const float* gradients, float* velocity, std::size_t count,
                   const SgdStep& step) = 0;
  virtual void adamw(float* parameters, const float* gradients, float* mean, float* square, std::size_t count,
                     const AdamStep& step) = 0;
};

inline Memory::Memory(Memory&& other) noexcept
    : device_(other.device_), data_(other.data_), bytes_(other.bytes_), on_host_(other.on_host_) {
  other.data_ = nullptr;
}
inline Memory& Memory::operator=(Memory&& other) noexcept {
  if (this != &other) {
    this->~Memory();
    new (this) Memory(static_cast<Memory&&>(other));
  }
  return *this;
}
inline Memory::~Memory() {
  if (data_) device_->release(data_, bytes_, on_host_);
}

}  // namespace trainer
