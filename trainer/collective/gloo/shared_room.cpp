#include "trainer/collective/gloo/shared_room.hpp"

#include <fcntl.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <climits>
#include <cstring>
#include <random>

namespace trainer {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kPart = std::size_t(1) << 20;  // floats of a rank; larger sums go piece by piece
constexpr std::size_t kBlock = 2048;                 // floats that are added up while they are in the cache
constexpr int kSpins = 2000;  // before the kernel is asked to wait: some ten microseconds
constexpr std::chrono::milliseconds kGlance{50};

long futex(std::atomic<std::uint32_t>& word, int operation, std::uint32_t value, const timespec* limit) {
  return ::syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(&word), operation, value, limit, nullptr, 0);
}

}  // namespace

struct SharedRoom::Head {
  std::uint64_t token;                  // whoever enters knows it
  std::atomic<std::uint32_t> arrivals;  // of all ranks at all meetings
};

namespace {

constexpr std::size_t kHead = 4096;
static_assert(sizeof(float) == 4 && std::atomic<std::uint32_t>::is_always_lock_free);

std::size_t bytes_of(int size) { return kHead + (std::size_t(size) + 1) * kPart * sizeof(float); }

// The sum over the ranks from `first` on, block by block, in the tree's order.
void add_tree(float* to, const std::function<const float*(int)>& of, int first, int count,
              std::size_t length) {
  if (count == 1) {
    std::memcpy(to, of(first), length * sizeof(float));
    return;
  }
  const int left = int(std::bit_floor(unsigned(count - 1)));
  float other[kBlock];
  add_tree(to, of, first, left, length);
  const float* right = other;
  if (count - left == 1) {
    right = of(first + left);
  } else {
    add_tree(other, of, first + left, count - left, length);
  }
  for (std::size_t i = 0; i < length; ++i) to[i] += right[i];
}

}  // namespace

SharedRoom::SharedRoom(int rank, int size, void* memory, int fd)
    : rank_(rank), size_(size), memory_(memory), fd_(fd) {}

SharedRoom::~SharedRoom() {
  ::munmap(memory_, bytes_of(size_));
  if (fd_ >= 0) ::close(fd_);
}

float* SharedRoom::part(int rank) const {
  return reinterpret_cast<float*>(static_cast<char*>(memory_) + kHead) + std::size_t(rank) * kPart;
}

dlaunch::Result<std::unique_ptr<SharedRoom>> SharedRoom::map(int rank, int size, int fd) {
  void* memory = ::mmap(nullptr, bytes_of(size), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (memory == MAP_FAILED) return dlaunch::last_error("mmap");
  return std::unique_ptr<SharedRoom>(new SharedRoom(rank, size, memory, rank == 0 ? fd : -1));
}

dlaunch::Result<std::unique_ptr<SharedRoom>> SharedRoom::make(int size, std::string& place) {
  int fd = ::memfd_create("train-sums", MFD_CLOEXEC);
  if (fd < 0) return dlaunch::last_error("memfd_create");
  if (::ftruncate(fd, off_t(bytes_of(size))) != 0) {
    auto error = dlaunch::last_error("ftruncate");
    ::close(fd);
    return error;
  }
  auto room = map(0, size, fd);
  if (!room) {
    ::close(fd);
    return room;
  }
  std::random_device random;
  auto token = std::uint64_t(random()) << 32 | random();
  static_cast<Head*>((*room)->memory_)->token = token;
  place = std::to_string(token) + " /proc/" + std::to_string(::getpid()) + "/fd/" + std::to_string(fd);
  return room;
}

dlaunch::Result<std::unique_ptr<SharedRoom>> SharedRoom::enter(int rank, int size, const std::string& place) {
  auto space = place.find(' ');
  auto path = place.substr(std::min(space, place.size() - 1) + 1);
  int fd = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (fd < 0) return dlaunch::last_error(path);
  // On another host this may be anything: only what has the size and the token is the room.
  struct stat status {};
  if (::fstat(fd, &status) != 0 || !S_ISREG(status.st_mode) || status.st_size != off_t(bytes_of(size))) {
    ::close(fd);
    return dlaunch::Error{dlaunch::Errc::not_found, path + " is something else"};
  }
  auto room = map(rank, size, fd);
  ::close(fd);
  if (!room) return room;
  if (std::to_string(static_cast<const Head*>((*room)->memory_)->token) != place.substr(0, space)) {
    return dlaunch::Error{dlaunch::Errc::not_found, path + " is something else"};
  }
  return room;
}

SharedRoom::End SharedRoom::meet(Milliseconds limit, const std::function<bool()>& peer_gone) {
  auto& arrivals = static_cast<Head*>(memory_)->arrivals;
  const auto target = ++meetings_ * std::uint32_t(size_);
  auto seen = arrivals.fetch_add(1, std::memory_order_acq_rel) + 1;
  if (seen == target) {
    futex(arrivals, FUTEX_WAKE, INT_MAX, nullptr);
    return End::good;
  }
  // Counts wrap around, so that only their difference tells; the others may be one meeting ahead.
  auto all_here = [&] {
    return std::int32_t((seen = arrivals.load(std::memory_order_acquire)) - target) >= 0;
  };
  for (int i = 0; i < kSpins; ++i) {
    if (all_here()) return End::good;
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
  }
  const auto deadline = Clock::now() + limit;
  constexpr timespec kSlice{0, std::chrono::nanoseconds(kGlance).count()};
  while (!all_here()) {
    futex(arrivals, FUTEX_WAIT, seen, &kSlice);
    if (all_here()) break;
    if (peer_gone()) return End::peer_gone;
    if (Clock::now() >= deadline) return End::timed_out;
  }
  return End::good;
}

SharedRoom::End SharedRoom::piece(std::span<float> values, Milliseconds limit,
                                  const std::function<bool()>& peer_gone) {
  std::memcpy(part(rank_), values.data(), values.size_bytes());
  auto met = meet(limit, peer_gone);
  if (met != End::good) return met;
  const auto begin = values.size() * std::size_t(rank_) / std::size_t(size_);
  const auto end = values.size() * std::size_t(rank_ + 1) / std::size_t(size_);
  for (auto at = begin; at < end; at += kBlock) {
    add_tree(
        result() + at, [&](int rank) { return part(rank) + at; }, 0, size_, std::min(kBlock, end - at));
  }
  met = meet(limit, peer_gone);
  if (met == End::good) std::memcpy(values.data(), result(), values.size_bytes());
  return met;
}

SharedRoom::End SharedRoom::all_reduce(std::span<float> values, Milliseconds limit,
                                       const std::function<bool()>& peer_gone) {
  auto end = End::good;
  for (std::size_t at = 0; at < values.size() && end == End::good; at += kPart) {
    end = piece(values.subspan(at, std::min(kPart, values.size() - at)), limit, peer_gone);
  }
  return end;
}

}  // namespace trainer
