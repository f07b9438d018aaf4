// The file is a first line and a list of records: two lengths of 4 bytes (host order: one machine type shares
// it), a key, a value. A value is set by a record, and a later record of the same key wins. Two of its bytes
// are locked, whether they exist or not: byte 0 by whoever reads or writes, byte 1 (shared) by everyone who
// takes part, for as long as it does. Locks of open file descriptions end with their process, however it
// ends.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>
#include <string_view>
#include <thread>

#include "trainer/collective/meeting_place.hpp"

namespace trainer {
namespace {

using Clock = std::chrono::steady_clock;

constexpr off_t kWriting = 0;
constexpr off_t kPresent = 1;
constexpr Milliseconds kFirstPause{2};
constexpr Milliseconds kLongestPause{50};
constexpr std::chrono::seconds kBusy{30};  // that others may read and write
constexpr std::uint32_t kMaxText = 1u << 20;
constexpr std::string_view kFirstLine = "train: ranks meet here\n";

class FileMeetingPlace : public MeetingPlace {
 public:
  FileMeetingPlace(std::string path, std::string prefix)
      : path_(std::move(path)), prefix_(std::move(prefix)) {}

  ~FileMeetingPlace() override {
    if (fd_ < 0) return;
    // The last one is whoever gets the presence for itself.
    if (lock(kWriting, F_WRLCK, Clock::now() + std::chrono::seconds(2)) && try_lock(kPresent, F_WRLCK)) {
      ::unlink(path_.c_str());
    }
    ::close(fd_);
  }

  Result<> open(Milliseconds limit) {
    const auto deadline = Clock::now() + limit;
    for (;;) {
      fd_ = ::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
      if (fd_ < 0) return dlaunch::last_error(path_, Errc::usage);
      auto locked = lock(kWriting, F_WRLCK, deadline);
      if (!locked) return locked;
      struct stat mine {
      }, named{};
      if (::fstat(fd_, &mine) == 0 && ::stat(path_.c_str(), &named) == 0 && mine.st_ino == named.st_ino)
        break;
      ::close(fd_);  // the last of an earlier run has just deleted it
      fd_ = -1;
    }
    auto ours = begin();
    if (!ours) {
      ::close(fd_);  // somebody else's file stays as it is
      fd_ = -1;
      return ours;
    }
    if (!try_lock(kPresent, F_RDLCK)) return dlaunch::last_error("lock " + path_);
    unlock(kWriting);
    return {};
  }

  Result<> set(const std::string& key, const std::string& value) override {
    return locked(F_WRLCK, [&] { return append(prefix_ + key, value); });
  }
  Result<std::string> get(const std::string& key, Milliseconds limit) override {
    const auto deadline = Clock::now() + limit;
    for (auto pause = kFirstPause;; pause = std::min(pause * 2, kLongestPause)) {
      auto there = has(key);
      if (!there) return std::move(there).error();
      if (*there) return values_[prefix_ + key];
      if (Clock::now() >= deadline) {
        return Error{Errc::timed_out, "'" + key + "' did not appear in " + path_ + " within " +
                                          std::to_string(limit.count()) + " ms"};
      }
      std::this_thread::sleep_for(pause);
    }
  }
  Result<bool> has(const std::string& key) override {
    auto done = locked(F_RDLCK, [] { return Result<>(); });
    if (!done) return std::move(done).error();
    return values_.contains(prefix_ + key);
  }
  Result<std::string> settle(const std::string& key, const std::string& value) override {
    auto done = locked(F_WRLCK, [&] {
      if (values_.contains(prefix_ + key)) return Result<>();
      auto appended = append(prefix_ + key, value);
      return appended ? read() : appended;
    });
    if (!done) return std::move(done).error();
    return values_[prefix_ + key];
  }

 private:
  bool try_lock(off_t byte, short type) {
    struct flock request {};
    request.l_type = type;
    request.l_whence = SEEK_SET;
    request.l_start = byte;
    request.l_len = 1;
    return ::fcntl(fd_, F_OFD_SETLK, &request) == 0;
  }
  void unlock(off_t byte) { (void)try_lock(byte, F_UNLCK); }
  Result<> lock(off_t byte, short type, Clock::time_point deadline) {
    for (auto pause = kFirstPause; !try_lock(byte, type); pause = std::min(pause * 2, kLongestPause)) {
      if (errno != EAGAIN && errno != EACCES && errno != EINTR) {
        return Error{Errc::usage, path_ + " cannot be locked: " + std::strerror(errno),
                     "choose a file system with locks, or tcp://"};
      }
      if (Clock::now() >= deadline) return Error{Errc::timed_out, path_ + " is held by another process"};
      std::this_thread::sleep_for(pause);
    }
    return {};
  }

  // Reads what is new and does `work`, while nobody else writes.
  template <class Work>
  Result<> locked(short type, Work work) {
    auto done = lock(kWriting, type, Clock::now() + kBusy);
    if (!done) return done;
    done = read();
    if (done) done = work();
    unlock(kWriting);
    return done;
  }

  Result<> begin() {
    struct stat status {};
    if (::fstat(fd_, &status) != 0) return dlaunch::last_error(path_);
    std::string first(kFirstLine.size(), '\0');
    const auto read = S_ISREG(status.st_mode) ? ::pread(fd_, first.data(), first.size(), 0) : -1;
    // A piece of the line was left by a process that was killed as it began.
    if (read < 0 || kFirstLine.substr(0, std::size_t(read)) != first.substr(0, std::size_t(read))) {
      return Error{Errc::usage, path_ + " is something else than a place where ranks meet",
                   "give the path of a file that does not exist"};
    }
    // Nobody takes part: whatever it holds was left by a run that was killed.
    if (!try_lock(kPresent, F_WRLCK)) return {};
    if (::ftruncate(fd_, 0) != 0) return dlaunch::last_error("truncate " + path_);
    if (::pwrite(fd_, kFirstLine.data(), kFirstLine.size(), 0) != ssize_t(kFirstLine.size())) {
      return dlaunch::last_error("write " + path_);
    }
    return {};
  }

  // Everything that is there must have been read.
  Result<> append(const std::string& key, const std::string& value) {
    const std::uint32_t lengths[2] = {std::uint32_t(key.size()), std::uint32_t(value.size())};
    auto record = std::string(reinterpret_cast<const char*>(lengths), sizeof lengths) + key + value;
    // A writer that was killed half way leaves a piece behind the whole records. It may be longer than what
    // takes its place, and its rest would be read as a record.
    if (::ftruncate(fd_, off_t(whole_)) != 0) return dlaunch::last_error("truncate " + path_);
    if (::pwrite(fd_, record.data(), record.size(), off_t(whole_)) != ssize_t(record.size())) {
      return dlaunch::last_error("write " + path_);
    }
    return {};
  }

  // What was appended since the last time.
  Result<> read() {
    const auto size = std::uint64_t(std::max<off_t>(::lseek(fd_, 0, SEEK_END), 0));
    while (whole_ + 8 <= size) {
      std::uint32_t lengths[2];
      if (::pread(fd_, lengths, sizeof lengths, off_t(whole_)) != sizeof lengths)
        return dlaunch::last_error("read " + path_);
      if (lengths[0] > kMaxText || lengths[1] > kMaxText) {
        return Error{Errc::usage,
                     path_ + " is no file of a group: offset " + std::to_string(whole_) + " promises " +
                         std::to_string(std::max(lengths[0], lengths[1])) + " bytes",
                     "choose a file that does not exist"};
      }
      const auto length = std::uint64_t(lengths[0]) + lengths[1];
      if (whole_ + 8 + length > size) break;
      std::string text(length, '\0');
      if (::pread(fd_, text.data(), length, off_t(whole_ + 8)) != ssize_t(length))
        return dlaunch::last_error("read " + path_);
      values_[text.substr(0, lengths[0])] = text.substr(lengths[0]);
      whole_ += 8 + length;
    }
    return {};
  }

  std::string path_;
  std::string prefix_;
  int fd_ = -1;
  std::uint64_t whole_ = kFirstLine.size();  // bytes of whole records that have been read
  std::map<std::string, std::string> values_;
};

}  // namespace

Result<std::unique_ptr<MeetingPlace>> meet_at_file(const std::string& path, const std::string& prefix,
                                                   Milliseconds limit) {
  auto place = std::make_unique<FileMeetingPlace>(path, prefix);
  auto opened = place->open(limit);
  if (!opened) return std::move(opened).error();
  return std::unique_ptr<MeetingPlace>(std::move(place));
}

}  // namespace trainer
