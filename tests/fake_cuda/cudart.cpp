// libcudart for machines without a GPU; see README.md.
#include <cuda_runtime_api.h>
#include <dlfcn.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "trainer/device/cuda/host_runner.hpp"

namespace {

using Clock = std::chrono::steady_clock;

int number_in(const char* name, int otherwise) {
  const char* text = std::getenv(name);
  return text ? std::atoi(text) : otherwise;
}

// The number after "what:" in FAKE_CUDA_FAIL; 0 if it is about something else.
int failing(const char* what) {
  const char* text = std::getenv("FAKE_CUDA_FAIL");
  const std::size_t length = std::strlen(what);
  return text && std::strncmp(text, what, length) == 0 && text[length] == ':' ? std::atoi(text + length + 1)
                                                                              : 0;
}

bool fails_now(const char* what, std::atomic<int>& calls) { return ++calls == failing(what); }
std::atomic<int> mallocs{0};
std::atomic<int> launches{0};
std::atomic<int> copies{0};

thread_local int current = 0;
std::atomic<int> sticky{cudaSuccess};

int devices() { return number_in("FAKE_CUDA_DEVICES", 1); }

// Where the pieces of device and of pinned memory lie.
class Pieces {
 public:
  void add(void* data, std::size_t bytes) {
    const std::lock_guard lock(mutex_);
    pieces_[static_cast<char*>(data)] = bytes;
  }
  bool remove(void* data) {
    const std::lock_guard lock(mutex_);
    return pieces_.erase(static_cast<char*>(data)) == 1;
  }
  bool holds(const void* data, std::size_t bytes) const {
    const std::lock_guard lock(mutex_);
    const char* start = static_cast<const char*>(data);
    auto after = pieces_.upper_bound(const_cast<char*>(start));
    if (after == pieces_.begin()) return false;
    const auto& [piece, length] = *std::prev(after);
    return start + bytes <= piece + length;
  }

 private:
  mutable std::mutex mutex_;
  std::map<char*, std::size_t> pieces_;
};
Pieces& device_memory() {
  static auto* pieces = new Pieces;
  return *pieces;
}

// One recording of an event; the event itself points to its last.
struct Point {
  std::mutex mutex;
  std::condition_variable changed;
  bool reached = false;
  Clock::time_point when;
  void reach() {
    const std::lock_guard lock(mutex);
    reached = true;
    when = Clock::now();
    changed.notify_all();
  }
  void wait() {
    std::unique_lock lock(mutex);
    changed.wait(lock, [this] { return reached; });
  }
};

}  // namespace

struct CUevent_st {
  std::mutex mutex;
  std::shared_ptr<Point> last;
  std::shared_ptr<Point> point() {
    const std::lock_guard lock(mutex);
    return last;
  }
};

struct CUstream_st {
  CUstream_st() : worker([this] { work(); }) {}
  ~CUstream_st() {
    push(nullptr);
    worker.join();
  }
  void push(std::function<void()> task) {
    const std::lock_guard lock(mutex);
    tasks.push_back(std::move(task));
    changed.notify_one();
  }
  void work() {
    for (;;) {
      std::unique_lock lock(mutex);
      changed.wait(lock, [this] { return !tasks.empty(); });
      auto task = std::move(tasks.front());
      tasks.pop_front();
      lock.unlock();
      if (!task) return;
      task();
    }
  }
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<std::function<void()>> tasks;
  std::thread worker;
};

namespace {

std::mutex streams_mutex;
std::vector<cudaStream_t>& streams() {
  static auto* all = new std::vector<cudaStream_t>;
  return *all;
}

void wait_for_all() {  // as cudaFree does
  std::vector<std::shared_ptr<Point>> points;
  {
    const std::lock_guard lock(streams_mutex);
    for (auto* stream : streams()) {
      auto point = std::make_shared<Point>();
      stream->push([point] { point->reach(); });
      points.push_back(point);
    }
  }
  for (auto& point : points) point->wait();
}

cudaError_t answer(cudaError_t code) { return sticky != cudaSuccess ? cudaError_t(sticky.load()) : code; }

}  // namespace

extern "C" {

cudaError_t cudaGetDeviceCount(int* count) {
  if (const int code = failing("count")) return cudaError_t(code);
  if (devices() == 0) return cudaErrorNoDevice;
  *count = devices();
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int device) {
  if (device < 0 || device >= devices()) return cudaErrorInvalidDevice;
  current = device;
  return cudaSuccess;
}
cudaError_t cudaGetDevice(int* device) {
  *device = current;
  return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  if (device < 0 || device >= devices()) return cudaErrorInvalidDevice;
  *properties = {};
  std::strcpy(properties->name, "Stand-in GPU");
  properties->totalGlobalMem = 2'000'000'000;
  properties->uuid.bytes[0] = static_cast<char>(0xda);
  properties->uuid.bytes[15] = static_cast<char>(number_in("FAKE_CUDA_UUID", 0) + device);
  return cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}
cudaError_t cudaDriverGetVersion(int* version) {
  *version = failing("count") ? 0 : CUDART_VERSION;
  return cudaSuccess;
}
cudaError_t cudaGetLastError() { return cudaError_t(sticky.load()); }
const char* cudaGetErrorString(cudaError_t code) {
  switch (code) {
    case cudaSuccess:
      return "no error";
    case cudaErrorMemoryAllocation:
      return "out of memory";
    case cudaErrorInvalidValue:
      return "invalid argument";
    case cudaErrorNoDevice:
      return "no CUDA-capable device is detected";
    case cudaErrorInsufficientDriver:
      return "CUDA driver version is insufficient for CUDA runtime version";
    case cudaErrorStubLibrary:
      return "CUDA driver is a stub library";
    case cudaErrorInvalidDevice:
      return "invalid device ordinal";
    case cudaErrorIllegalAddress:
      return "an illegal memory access was encountered";
    default:
      return "unrecognized error code";
  }
}

cudaError_t cudaMalloc(void** data, std::size_t bytes) {
  if (fails_now("malloc", mallocs)) return cudaErrorMemoryAllocation;
  *data = std::malloc(bytes);
  std::memset(*data, 0xff, bytes);  // NaN: nobody may count on zeros
  device_memory().add(*data, bytes);
  return answer(cudaSuccess);
}
cudaError_t cudaFree(void* data) {
  if (!data) return cudaSuccess;
  wait_for_all();
  if (!device_memory().remove(data)) return cudaErrorInvalidValue;
  std::free(data);
  return answer(cudaSuccess);
}
cudaError_t cudaMallocHost(void** data, std::size_t bytes) {
  *data = std::malloc(bytes);
  return answer(cudaSuccess);
}
cudaError_t cudaFreeHost(void* data) {
  wait_for_all();
  std::free(data);
  return answer(cudaSuccess);
}
cudaError_t cudaMemsetAsync(void* data, int value, std::size_t bytes, cudaStream_t stream) {
  if (!device_memory().holds(data, bytes)) return cudaErrorInvalidValue;
  stream->push([=] { std::memset(data, value, bytes); });
  return answer(cudaSuccess);
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  if (fails_now("copy", copies)) sticky = cudaErrorIllegalAddress;
  const bool to_device = device_memory().holds(to, bytes);
  const bool from_device = device_memory().holds(from, bytes);
  if (to_device != (kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice) ||
      from_device != (kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice)) {
    return cudaErrorInvalidValue;
  }
  stream->push([=] { std::memmove(to, from, bytes); });
  return answer(cudaSuccess);
}
cudaError_t cudaMemcpyPeerAsync(void* to, int, const void* from, int, std::size_t bytes,
                                cudaStream_t stream) {
  return cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream);
}

cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  *least = 0;
  *greatest = -5;
  return cudaSuccess;
}
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned, int) {
  *stream = new CUstream_st;
  const std::lock_guard lock(streams_mutex);
  streams().push_back(*stream);
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  {
    const std::lock_guard lock(streams_mutex);
    std::erase(streams(), stream);
  }
  delete stream;
  return cudaSuccess;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  if (number_in("FAKE_CUDA_LOSE_WAITS", 0)) return cudaSuccess;
  if (auto point = event->point()) stream->push([point] { point->wait(); });
  return answer(cudaSuccess);
}
cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void* argument) {
  stream->push([=] { function(argument); });
  return answer(cudaSuccess);
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  *event = new CUevent_st;
  return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete event;
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  auto point = std::make_shared<Point>();
  {
    const std::lock_guard lock(event->mutex);
    event->last = point;
  }
  stream->push([point] { point->reach(); });
  return answer(cudaSuccess);
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
  auto point = event->point();
  if (!point) return answer(cudaSuccess);
  const std::lock_guard lock(point->mutex);
  return answer(point->reached ? cudaSuccess : cudaErrorNotReady);
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  if (auto point = event->point()) point->wait();
  return answer(cudaSuccess);
}
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t from, cudaEvent_t to) {
  auto start = from->point();
  auto end = to->point();
  if (!start || !end) return cudaErrorInvalidResourceHandle;
  if (cudaEventQuery(from) != cudaSuccess || cudaEventQuery(to) != cudaSuccess) return cudaErrorNotReady;
  *milliseconds = std::chrono::duration<float, std::milli>(end->when - start->when).count();
  return answer(cudaSuccess);
}

cudaError_t cudaLaunchKernel(const void* kernel, dim3, dim3, void** arguments, std::size_t,
                             cudaStream_t stream) {
  if (fails_now("launch", launches)) sticky = cudaErrorIllegalAddress;
  Dl_info where{};
  if (!dladdr(kernel, &where)) return cudaErrorInvalidDeviceFunction;
  using Find = const trainer::cuda::HostRunner* (*)(const void*);
  static const Find find = [&] {
    void* module = dlopen(where.dli_fname, RTLD_NOW | RTLD_NOLOAD);
    return module ? reinterpret_cast<Find>(dlsym(module, "train_cuda_host_runner")) : nullptr;
  }();
  const auto* runner = find ? find(kernel) : nullptr;
  if (!runner) return cudaErrorInvalidDeviceFunction;
  const auto* bytes = static_cast<const std::max_align_t*>(arguments[0]);
  // The arguments are gone when this returns, so they are kept for the stream.
  auto functor = std::make_shared<std::vector<std::max_align_t>>(
      (runner->functor_bytes + sizeof(std::max_align_t) - 1) / sizeof(std::max_align_t));
  std::memcpy(functor->data(), bytes, runner->functor_bytes);
  const std::size_t count = *static_cast<const std::size_t*>(arguments[1]);
  stream->push([=] { runner->run(functor->data(), count); });
  return answer(cudaSuccess);
}

void** __cudaRegisterFatBinary(void*) {
  static void* handle = nullptr;
  return &handle;
}
void __cudaRegisterFatBinaryEnd(void**) {}
void __cudaUnregisterFatBinary(void**) {}
void __cudaRegisterFunction(void**, const char*, char*, const char*, int, uint3*, uint3*, dim3*, dim3*,
                            int*) {}
char __cudaInitModule(void**) { return 0; }
unsigned __cudaPushCallConfiguration(dim3, dim3, std::size_t, cudaStream_t) { return 0; }
cudaError_t __cudaPopCallConfiguration(dim3*, dim3*, std::size_t*, void*) { return cudaSuccess; }
cudaError_t __cudaGetKernel(cudaKernel_t* kernel, const void* entry) {
  *kernel = reinterpret_cast<cudaKernel_t>(const_cast<void*>(entry));
  return cudaSuccess;
}
cudaError_t __cudaLaunchKernel(cudaKernel_t, dim3, dim3, void**, std::size_t, cudaStream_t) {
  return cudaErrorNotSupported;
}

}  // extern "C"
