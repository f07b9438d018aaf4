// The CUDA runtime's answers as errors, and its handles as owned values. What every file of the CUDA module
// includes first.
#pragma once

#include <cuda_runtime_api.h>

#include <string>
#include <utility>

#include "dlaunch/result.hpp"

namespace trainer::cuda {

using dlaunch::Errc;
using dlaunch::Error;
using dlaunch::Result;

// "cudaMalloc: out of memory".
inline Error error_of(cudaError_t code, const char* call) {
  return Error{Errc::failed, std::string(call) + ": " + cudaGetErrorString(code)};
}

inline Result<> checked(cudaError_t code, const char* call) {
  if (code == cudaSuccess) return {};
  return error_of(code, call);
}

// Of the device that was current when it was made.
class Event {
 public:
  Event() = default;
  Event(Event&& other) noexcept : event_(std::exchange(other.event_, nullptr)) {}
  Event& operator=(Event&& other) noexcept {
    std::swap(event_, other.event_);
    return *this;
  }
  ~Event() {
    if (event_) cudaEventDestroy(event_);
  }
  // `timed` events cost a little more and can be given to cudaEventElapsedTime.
  static Result<Event> create(bool timed) {
    Event event;
    const cudaError_t code =
        cudaEventCreateWithFlags(&event.event_, timed ? cudaEventDefault : cudaEventDisableTiming);
    if (code != cudaSuccess) return error_of(code, "cudaEventCreate");
    return Result<Event>(std::move(event));
  }
  cudaEvent_t get() const { return event_; }

 private:
  cudaEvent_t event_ = nullptr;
};

// One that does not wait for the legacy default stream.
class Stream {
 public:
  Stream() = default;
  Stream(Stream&& other) noexcept : stream_(std::exchange(other.stream_, nullptr)) {}
  Stream& operator=(Stream&& other) noexcept {
    std::swap(stream_, other.stream_);
    return *this;
  }
  ~Stream() {
    if (stream_) cudaStreamDestroy(stream_);
  }
  // `urgent`: its kernels go before those of other streams where both are waiting.
  static Result<Stream> create(bool urgent = false) {
    int lowest = 0;
    int highest = 0;
    cudaDeviceGetStreamPriorityRange(&lowest, &highest);
    Stream stream;
    const cudaError_t code =
        cudaStreamCreateWithPriority(&stream.stream_, cudaStreamNonBlocking, urgent ? highest : lowest);
    if (code != cudaSuccess) return error_of(code, "cudaStreamCreate");
    return Result<Stream>(std::move(stream));
  }
  cudaStream_t get() const { return stream_; }

 private:
  cudaStream_t stream_ = nullptr;
};

}  // namespace trainer::cuda
