#include "trainer/device/cuda/cuda_device.hpp"

#include <algorithm>
#include <cstdio>
#include <thread>

namespace trainer::cuda {
namespace {

// What NVIDIA asks for on its largest parts. With less, or with cuBLAS's own pool, the choice of a kernel may
// differ between two runs.
constexpr std::size_t kWorkspaceBytes = 32u << 20;

std::string text_of(const cudaUUID_t& uuid) {
  std::string text = "GPU-";
  for (std::size_t i = 0; i < sizeof uuid.bytes; ++i) {
    char pair[4];
    std::snprintf(pair, sizeof pair, "%02x", static_cast<unsigned char>(uuid.bytes[i]));
    text += pair;
    if (i == 3 || i == 5 || i == 7 || i == 9) text += '-';
  }
  return text;
}

Result<> checked_blas(cublasStatus_t status, const char* call) {
  if (status == CUBLAS_STATUS_SUCCESS) return {};
  return Error{Errc::failed, std::string(call) + ": " + cublasGetStatusString(status)};
}

}  // namespace

Result<std::unique_ptr<CudaDevice>> CudaDevice::open(int ordinal) {
  std::unique_ptr<CudaDevice> device(new CudaDevice(ordinal));
  auto ready = device->prepare();
  if (!ready) return ready.error().under(device->name());
  return device;
}

Result<> CudaDevice::prepare() {
  int count = 0;
  if (auto done = checked(cudaGetDeviceCount(&count), "cudaGetDeviceCount"); !done) return done;
  if (ordinal_ < 0 || ordinal_ >= count) {
    return Error{Errc::usage, "there is no such GPU: this process sees " + std::to_string(count)};
  }
  cudaDeviceProp properties{};
  if (auto done = checked(cudaGetDeviceProperties(&properties, ordinal_), "cudaGetDeviceProperties"); !done) {
    return done;
  }
  description_ = std::string(properties.name) + ", " +
                 std::to_string((properties.totalGlobalMem + 500'000'000) / 1'000'000'000) + " GB";
  unique_id_ = text_of(properties.uuid);

  if (auto done = checked(cudaSetDevice(ordinal_), "cudaSetDevice"); !done) return done;
  for (Stream* stream : {&lane_, &staging_}) {
    auto made = Stream::create();
    if (!made) return made.error();
    *stream = std::move(*made);
  }
  for (Event& event : marks_) {
    auto made = Event::create(/*timed=*/true);
    if (!made) return made.error();
    event = std::move(*made);
  }
  auto staged = Event::create(/*timed=*/false);
  if (!staged) return staged.error();
  staged_ = std::move(*staged);

  if (auto done = checked(cudaMalloc(&workspace_, kWorkspaceBytes), "cudaMalloc"); !done) return done;
  if (auto done = checked_blas(cublasCreate(&blas_), "cublasCreate"); !done) return done;
  if (auto done = checked_blas(cublasSetStream(blas_, lane_.get()), "cublasSetStream"); !done) return done;
  // Setting the stream takes a workspace away again, so this comes after it.
  if (auto done = checked_blas(cublasSetWorkspace(blas_, workspace_, kWorkspaceBytes), "cublasSetWorkspace");
      !done) {
    return done;
  }
  return checked_blas(cublasSetMathMode(blas_, CUBLAS_PEDANTIC_MATH), "cublasSetMathMode");
}

CudaDevice::~CudaDevice() {
  use();
  if (blas_) cublasDestroy(blas_);
  cudaFree(scratch_);
  cudaFree(workspace_);
}

void CudaDevice::use() { keep(cudaSetDevice(ordinal_), "cudaSetDevice"); }

void CudaDevice::fail(Error fault) {
  const std::lock_guard lock(mutex_);
  if (!fault_) fault_ = std::move(fault);
}

bool CudaDevice::keep(cudaError_t code, const char* call) {
  if (code == cudaSuccess) return true;
  fail(error_of(code, call).under(name()));
  return false;
}

Result<> CudaDevice::fault() const {
  const std::lock_guard lock(mutex_);
  if (fault_) return *fault_;
  return {};
}

void CudaDevice::set_watch(Watch watch) {
  auto shared = watch ? std::make_shared<const Watch>(std::move(watch)) : nullptr;
  const std::lock_guard lock(mutex_);
  watch_ = std::move(shared);
}

std::string CudaDevice::out_of_memory(std::size_t bytes, cudaError_t code) const {
  return name() + ": no " + std::to_string(bytes >> 20) + " MiB more beside the " +
         std::to_string(memory_use().now >> 20) + " MiB of this process: " + cudaGetErrorString(code);
}

Result<Memory> CudaDevice::allocate(std::size_t bytes) {
  use();
  void* data = nullptr;
  if (const auto code = cudaMalloc(&data, std::max<std::size_t>(bytes, 1)); code != cudaSuccess) {
    cudaGetLastError();  // this call's failure is not the next one's
    return Error{Errc::failed, out_of_memory(bytes, code), "try a smaller --batch-size"};
  }
  {
    const std::lock_guard lock(mutex_);
    use_.now += bytes;
    use_.peak = std::max(use_.peak, use_.now);
  }
  Memory memory(*this, data, bytes, /*on_host=*/false);
  keep(cudaMemsetAsync(data, 0, bytes, lane_.get()), "cudaMemset");
  // Other streams than the lane may be the first to write there.
  if (auto zeroed = wait(mark()); !zeroed) return zeroed.error();
  return memory;
}

Result<Memory> CudaDevice::allocate_host(std::size_t bytes) {
  use();
  void* data = nullptr;
  if (const auto code = cudaMallocHost(&data, std::max<std::size_t>(bytes, 1)); code != cudaSuccess) {
    cudaGetLastError();
    return Error{Errc::failed, name() + ": no " + std::to_string(bytes >> 20) +
                                   " MiB of pinned memory: " + cudaGetErrorString(code)};
  }
  std::fill_n(static_cast<char*>(data), bytes, 0);
  return Memory(*this, data, bytes, /*on_host=*/true);
}

void CudaDevice::release(void* data, std::size_t bytes, bool on_host) {
  use();
  if (on_host) {
    keep(cudaFreeHost(data), "cudaFreeHost");
    return;
  }
  keep(cudaFree(data), "cudaFree");
  const std::lock_guard lock(mutex_);
  use_.now -= bytes;
}

MemoryUse CudaDevice::memory_use() const {
  const std::lock_guard lock(mutex_);
  return use_;
}

void CudaDevice::upload(void* to, const void* host, std::size_t bytes) {
  use();
  keep(cudaMemcpyAsync(to, host, bytes, cudaMemcpyHostToDevice, lane_.get()), "cudaMemcpy to the device");
}

void CudaDevice::download(void* host, const void* from, std::size_t bytes) {
  use();
  keep(cudaMemcpyAsync(host, from, bytes, cudaMemcpyDeviceToHost, lane_.get()), "cudaMemcpy to the host");
}

void CudaDevice::copy(float* to, const float* from, std::size_t count) {
  use();
  keep(cudaMemcpyAsync(to, from, count * sizeof(float), cudaMemcpyDeviceToDevice, lane_.get()), "cudaMemcpy");
}

void CudaDevice::copy_from(float* to, Device& other, const float* from, std::size_t count) {
  auto& source = static_cast<CudaDevice&>(other);
  if (&source == this) return copy(to, from, count);
  const Mark written = source.mark();
  use();
  keep(cudaStreamWaitEvent(lane_.get(), source.marks_[written % kMarks].get(), 0), "cudaStreamWaitEvent");
  keep(cudaMemcpyPeerAsync(to, ordinal_, from, source.ordinal_, count * sizeof(float), lane_.get()),
       "cudaMemcpyPeer");
  const Mark read = mark();
  source.use();
  // The source's lane must not write there before it was read.
  source.keep(cudaStreamWaitEvent(source.lane_.get(), marks_[read % kMarks].get(), 0), "cudaStreamWaitEvent");
}

Mark CudaDevice::mark() {
  use();
  const Mark mark = made_.fetch_add(1);
  keep(cudaEventRecord(marks_[mark % kMarks].get(), lane_.get()), "cudaEventRecord");
  return mark;
}

Result<> CudaDevice::wait(Mark mark) { return wait_for(marks_[mark % kMarks].get()); }

double CudaDevice::seconds(Mark from, Mark to) {
  use();
  float milliseconds = 0;
  const auto code =
      cudaEventElapsedTime(&milliseconds, marks_[from % kMarks].get(), marks_[to % kMarks].get());
  return keep(code, "cudaEventElapsedTime") ? milliseconds / 1e3 : 0;
}

Result<> CudaDevice::synchronize() { return wait(mark()); }

Result<> CudaDevice::wait_for(cudaEvent_t event) {
  use();
  std::shared_ptr<const Watch> watch;
  {
    const std::lock_guard lock(mutex_);
    watch = watch_;
  }
  if (!watch) {
    keep(cudaEventSynchronize(event), "cudaEventSynchronize");
    return fault();
  }
  using namespace std::chrono;
  const auto start = steady_clock::now();
  cudaError_t state = cudaErrorNotReady;
  while ((state = cudaEventQuery(event)) == cudaErrorNotReady) {
    const auto waited = steady_clock::now() - start;
    if (waited < 100us) continue;
    if (auto fine = (*watch)(duration_cast<milliseconds>(waited)); !fine) {
      fail(fine.error());
      break;
    }
    std::this_thread::sleep_for(waited < 10ms ? 20us : 200us);
  }
  if (state != cudaErrorNotReady && keep(state, "cudaEventQuery")) {
    // What ended may have ended in failure.
    if (auto fine = (*watch)(0ms); !fine) fail(fine.error());
  }
  return fault();
}

Result<> CudaDevice::stage_out(void* host, const void* from, std::size_t bytes, Mark after) {
  use();
  keep(cudaStreamWaitEvent(staging_.get(), marks_[after % kMarks].get(), 0), "cudaStreamWaitEvent");
  keep(cudaMemcpyAsync(host, from, bytes, cudaMemcpyDeviceToHost, staging_.get()), "cudaMemcpy to the host");
  keep(cudaEventRecord(staged_.get(), staging_.get()), "cudaEventRecord");
  return wait_for(staged_.get());
}

Result<> CudaDevice::stage_in(void* to, const void* host, std::size_t bytes) {
  use();
  keep(cudaMemcpyAsync(to, host, bytes, cudaMemcpyHostToDevice, staging_.get()), "cudaMemcpy to the device");
  keep(cudaEventRecord(staged_.get(), staging_.get()), "cudaEventRecord");
  return wait_for(staged_.get());
}

void CudaDevice::gemm(bool transpose_a, bool transpose_b, int m, int n, int k, float alpha, const float* a,
                      int lda, const float* b, int ldb, float beta, float* c, int ldc) {
  if (m == 0 || n == 0) return;
  use();
  // cuBLAS reads columns first: what it sees is every matrix transposed, and (AB)' is B'A'.
  const auto operation = [](bool transpose) { return transpose ? CUBLAS_OP_T : CUBLAS_OP_N; };
  const auto status = cublasSgemm(blas_, operation(transpose_b), operation(transpose_a), n, m, k, &alpha, b,
                                  ldb, a, lda, &beta, c, ldc);
  if (auto done = checked_blas(status, "cublasSgemm"); !done) fail(done.error().under(name()));
}

float* CudaDevice::scratch(std::size_t floats) {
  if (floats <= scratch_floats_) return scratch_;
  use();
  keep(cudaFree(scratch_), "cudaFree");  // waits for what still uses it
  scratch_ = nullptr;
  scratch_floats_ = 0;
  void* data = nullptr;
  if (!keep(cudaMalloc(&data, floats * sizeof(float)), "cudaMalloc")) return nullptr;
  scratch_ = static_cast<float*>(data);
  scratch_floats_ = floats;
  return scratch_;
}

}  // namespace trainer::cuda
