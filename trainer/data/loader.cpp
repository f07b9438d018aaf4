#include "trainer/data/loader.hpp"

#include <pthread.h>
#include <signal.h>

#include <algorithm>
#include <array>
#include <bit>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

namespace trainer {
namespace {

constexpr int kMostWorkers = 256;
constexpr int kMostPrefetch = 4096;

// For faults of the caller that would otherwise read foreign memory or wait for ever.
void require(bool condition, const char* what) {
  if (condition) return;
  std::fprintf(stderr, "loader: %s\n", what);
  std::abort();
}

// Per channel, what each byte becomes.
using Table = std::array<float, 256>;

std::vector<Table> make_tables(const Dataset& data) {
  std::vector<Table> tables(data.mean.size());
  for (std::size_t channel = 0; channel < tables.size(); ++channel) {
    for (std::size_t byte = 0; byte < 256; ++byte) {
      tables[channel][byte] =
          (static_cast<float>(byte) / 255.0f - data.mean[channel]) / data.deviation[channel];
    }
  }
  return tables;
}

// Eight bytes at a time: one by one, each would be loaded anew after the store before it, since it might have
// been overwritten for all that a compiler knows.
void translate(float* out, const std::uint8_t* in, std::size_t count, const Table& table) {
  static_assert(std::endian::native == std::endian::little);
  std::size_t i = 0;
  for (; i + 8 <= count; i += 8) {
    std::uint64_t bytes;
    std::memcpy(&bytes, in + i, 8);
    for (std::size_t b = 0; b < 8; ++b) out[i + b] = table[bytes >> 8 * b & 0xff];
  }
  for (; i < count; ++i) out[i] = table[in[i]];
}

// Batches have numbers that never start again: released_ <= handed_ <= claimed_ <= end_, and batch n lies in
// slot n % slots. A list begins at base_, so one that is abandoned leaves what is still held where it is.
class SlotLoader : public Loader {
 public:
  SlotLoader(const Dataset& data, const Split& split, int largest_batch)
      : split_(split),
        pixels_(data.shape.pixels()),
        largest_(static_cast<std::size_t>(largest_batch)),
        tables_(make_tables(data)) {}

  ~SlotLoader() override {
    {
      std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    work_.notify_all();
    for (auto& thread : threads_) thread.join();
  }

  Result<> open(Device& device, const LoaderOptions& options) {
    const std::size_t bytes = largest_ * (pixels_ * sizeof(float) + sizeof(std::int32_t));
    for (int i = 0; i < std::max(1, options.prefetch); ++i) {
      auto memory = device.allocate_host(bytes);
      if (!memory) return std::move(memory.error()).under("memory for batches");
      slots_.push_back({std::move(*memory), kNothing});
    }
    // Signals are for the threads that know what to do with them.
    sigset_t all, before;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &before);
    Result<> started;
    try {
      for (int i = 0; i < options.workers; ++i) threads_.emplace_back([this] { work(); });
    } catch (const std::system_error& error) {
      started = Error{Errc::failed, "loader thread: " + error.code().message(), "fewer --workers"};
    }
    ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
    return started;
  }

  void start(std::vector<std::vector<std::uint32_t>> batches) override {
    std::erase_if(batches, [](const auto& batch) { return batch.empty(); });
    for (const auto& batch : batches) {
      require(batch.size() <= largest_, "a batch is larger than the largest");
      require(*std::max_element(batch.begin(), batch.end()) < split_.size(), "an index is beyond the split");
    }
    std::unique_lock lock(mutex_);
    end_ = claimed_;  // nobody begins another one
    done_.wait(lock, [&] { return busy_ == 0; });
    base_ = claimed_ = handed_;
    end_ = base_ + batches.size();
    for (auto& slot : slots_) {
      if (slot.filled >= base_) slot.filled = kNothing;
    }
    batches_ = std::move(batches);
    lock.unlock();
    work_.notify_all();
  }

  Batch next() override {
    std::unique_lock lock(mutex_);
    if (handed_ == end_) return {};
    require(handed_ - released_ < slots_.size(), "next() with every slot held: release() first");
    Slot& slot = slots_[handed_ % slots_.size()];
    if (threads_.empty()) {
      ++claimed_;
      fill(handed_);
      slot.filled = handed_;
    }
    done_.wait(lock, [&] { return slot.filled == handed_; });
    const std::size_t size = batches_[handed_ - base_].size();
    ++handed_;
    return {slot.memory.floats(), labels_of(slot), static_cast<int>(size)};
  }

  void release() override {
    {
      std::lock_guard lock(mutex_);
      require(released_ < handed_, "release() of nothing");
      ++released_;
    }
    work_.notify_one();
  }

 private:
  static constexpr std::uint64_t kNothing = ~std::uint64_t(0);

  struct Slot {
    Memory memory;  // images, then labels
    std::uint64_t filled = kNothing;
  };

  std::int32_t* labels_of(const Slot& slot) const {
    return reinterpret_cast<std::int32_t*>(slot.memory.floats() + largest_ * pixels_);
  }

  void work() {
    std::unique_lock lock(mutex_);
    for (;;) {
      work_.wait(lock,
                 [&] { return stopping_ || (claimed_ < end_ && claimed_ < released_ + slots_.size()); });
      if (stopping_) return;
      const std::uint64_t number = claimed_++;
      ++busy_;
      lock.unlock();
      fill(number);
      lock.lock();
      --busy_;
      slots_[number % slots_.size()].filled = number;
      done_.notify_all();
    }
  }

  // Touches nothing that the mutex protects but what the claim gave it: batch and slot.
  void fill(std::uint64_t number) {
    const Slot& slot = slots_[number % slots_.size()];
    const auto& batch = batches_[number - base_];
    const std::size_t plane = pixels_ / tables_.size();
    float* out = slot.memory.floats();
    std::int32_t* labels = labels_of(slot);
    for (const std::uint32_t index : batch) {
      const std::uint8_t* in = split_.images.data() + index * pixels_;
      for (const Table& table : tables_) {
        translate(out, in, plane, table);
        in += plane;
        out += plane;
      }
      *labels++ = split_.labels[index];
    }
  }

  const Split split_;
  const std::size_t pixels_;
  const std::size_t largest_;
  const std::vector<Table> tables_;
  std::vector<Slot> slots_;
  std::vector<std::thread> threads_;

  std::mutex mutex_;
  std::condition_variable work_, done_;
  std::vector<std::vector<std::uint32_t>> batches_;
  std::uint64_t base_ = 0, released_ = 0, handed_ = 0, claimed_ = 0, end_ = 0;
  int busy_ = 0;
  bool stopping_ = false;
};

}  // namespace

Result<std::unique_ptr<Loader>> Loader::create(const Dataset& data, const Split& split, Device& device,
                                               int largest_batch, const LoaderOptions& options) {
  if (options.workers < 0 || options.workers > kMostWorkers) {
    return Error{Errc::usage, "--workers is 0 to " + std::to_string(kMostWorkers) + ", not " +
                                  std::to_string(options.workers)};
  }
  if (options.prefetch < (options.workers > 0) || options.prefetch > kMostPrefetch) {
    return Error{Errc::usage, "--prefetch is 1 to " + std::to_string(kMostPrefetch) + ", not " +
                                  std::to_string(options.prefetch)};
  }
  if (largest_batch < 1) {
    return Error{Errc::usage, "a batch has at least 1 image, not " + std::to_string(largest_batch)};
  }
  auto loader = std::make_unique<SlotLoader>(data, split, largest_batch);
  if (auto opened = loader->open(device, options); !opened) return opened.error();
  return std::unique_ptr<Loader>(std::move(loader));
}

}  // namespace trainer
