#define XXH_INLINE_ALL
#include <fcntl.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <memory>
#include <vector>

#include "trainer/data/mapped_file.hpp"
#include "trainer/data/open.hpp"
#include "trainer/data/pack.hpp"

namespace trainer {
namespace {

// A file that takes its name when all of it is on disk; until then, and if it never comes to that, whatever
// had the name keeps it.
class Output {
 public:
  explicit Output(std::string path)
      : path_(std::move(path)), temporary_(path_ + ".tmp" + std::to_string(::getpid())) {}
  Output(const Output&) = delete;
  ~Output() {
    if (fd_ < 0) return;
    ::close(fd_);
    ::unlink(temporary_.c_str());
  }

  Result<> create() {
    fd_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (fd_ < 0) return dlaunch::last_error("open").under(quoted(temporary_));
    XXH64_reset(&checksum_, 0);
    return {};
  }

  Result<> write(std::span<const std::uint8_t> bytes) {
    XXH64_update(&checksum_, bytes.data(), bytes.size());
    written_ += bytes.size();
    while (!bytes.empty()) {
      const ssize_t n = ::write(fd_, bytes.data(), std::min(bytes.size(), std::size_t(1) << 30));
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) return dlaunch::last_error("write").under(quoted(temporary_));
      bytes = bytes.subspan(static_cast<std::size_t>(n));
    }
    return {};
  }

  Result<> pad_to(std::size_t offset) { return write(std::vector<std::uint8_t>(offset - written_)); }

  Result<> write_checksum() {
    const std::uint64_t sum = XXH64_digest(&checksum_);
    std::array<std::uint8_t, 8> bytes;
    for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::uint8_t>(sum >> 8 * i);
    return write(bytes);
  }

  Result<> commit() {
    if (::fsync(fd_) != 0) return dlaunch::last_error("fsync").under(quoted(temporary_));
    if (::rename(temporary_.c_str(), path_.c_str()) != 0)
      return dlaunch::last_error("rename").under(quoted(path_));
    ::close(fd_);
    fd_ = -1;
    const std::size_t slash = path_.rfind('/');
    const std::string folder = slash == path_.npos ? "." : path_.substr(0, slash + 1);
    const int folder_fd = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (folder_fd < 0) return dlaunch::last_error("open").under(quoted(folder));
    const bool synced = ::fsync(folder_fd) == 0;
    Error error = dlaunch::last_error("fsync").under(quoted(folder));
    ::close(folder_fd);
    if (!synced) return error;
    return {};
  }

 private:
  std::string path_, temporary_;
  int fd_ = -1;
  std::size_t written_ = 0;
  XXH64_state_t checksum_{};
};

Result<> check_agreement(const std::vector<Dataset>& sets) {
  const auto text = [](const Dataset& data) {
    return std::to_string(data.shape.channels) + "x" + std::to_string(data.shape.height) + "x" +
           std::to_string(data.shape.width) + " in " + std::to_string(data.classes) + " classes";
  };
  for (const Dataset& data : sets) {
    if (data.shape == sets[0].shape && data.classes == sets[0].classes) continue;
    return Error{Errc::usage, quoted(data.origin) + " has images of " + text(data) + ", " +
                                  quoted(sets[0].origin) + " of " + text(sets[0])};
  }
  return {};
}

Result<> write_all(Output& output, const std::vector<Dataset>& sets) {
  std::uint64_t train = 0, test = 0;
  std::vector<std::span<const std::uint8_t>> training_images;
  for (const Dataset& data : sets) {
    train += data.train.size();
    test += data.test.size();
    training_images.push_back(data.train.images);
  }
  if (train > kMaxImages || test > kMaxImages) {
    return Error{Errc::usage, std::to_string(std::max(train, test)) + " images are more than " +
                                  std::to_string(kMaxImages)};
  }
  Dataset whole;
  whole.shape = sets[0].shape;
  whole.classes = sets[0].classes;
  find_statistics(whole, training_images);
  const PackLayout layout = pack_layout(whole.shape, train, test);
  if (auto fine = output.create(); !fine) return fine;
  if (auto fine = output.write(pack_header(whole, train, test)); !fine) return fine;
  struct Section {
    std::size_t offset;
    Split Dataset::*split;
    std::span<const std::uint8_t> Split::*bytes;
  };
  for (const Section& section : {Section{layout.train_images, &Dataset::train, &Split::images},
                                 Section{layout.test_images, &Dataset::test, &Split::images},
                                 Section{layout.train_labels, &Dataset::train, &Split::labels},
                                 Section{layout.test_labels, &Dataset::test, &Split::labels}}) {
    if (auto fine = output.pad_to(section.offset); !fine) return fine;
    for (const Dataset& data : sets) {
      if (auto fine = output.write(data.*section.split.*section.bytes); !fine) return fine;
    }
  }
  if (auto fine = output.write_checksum(); !fine) return fine;
  return output.commit();
}

}  // namespace

Result<> pack_dataset(const std::vector<std::string>& inputs, const std::string& output) {
  if (inputs.empty()) return Error{Errc::usage, "nothing to pack", "train pack INPUT... --output FILE"};
  std::vector<Dataset> sets;
  for (const auto& input : inputs) {
    auto data = open_dataset(input, 0);
    if (!data) return data.error();
    sets.push_back(std::move(*data));
  }
  if (auto fine = check_agreement(sets); !fine) return fine;
  Output file(output);
  return write_all(file, sets);
}

}  // namespace trainer
