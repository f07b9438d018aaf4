#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <memory>
#include <vector>

#include "trainer/data/mapped_file.hpp"
#include "trainer/data/open.hpp"
#include "trainer/data/pack.hpp"
#include "trainer/file/checksum.hpp"
#include "trainer/file/new_file.hpp"

namespace trainer {
namespace {

// What has been written to the new file, and its checksum so far.
class Output {
 public:
  static Result<Output> create(const std::string& path) {
    auto file = NewFile::create(path);
    if (!file) return std::move(file).error();
    return Output(std::move(*file));
  }

  Result<> write(std::span<const std::uint8_t> bytes) {
    checksum_->add(std::as_bytes(bytes));
    written_ += bytes.size();
    return file_.write(std::as_bytes(bytes));
  }

  Result<> pad_to(std::size_t offset) { return write(std::vector<std::uint8_t>(offset - written_)); }

  Result<> write_checksum() {
    const std::uint64_t sum = checksum_->value();
    std::array<std::uint8_t, 8> bytes;
    for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::uint8_t>(sum >> 8 * i);
    return write(bytes);
  }

  Result<> appear() { return file_.appear(); }

 private:
  explicit Output(NewFile file) : file_(std::move(file)) {}

  NewFile file_;
  std::size_t written_ = 0;
  std::unique_ptr<Checksum> checksum_ = std::make_unique<Checksum>();
};

// Only an earlier packed file is written over: a slip of the pen costs nobody his images.
Result<> check_target(const std::string& path) {
  std::error_code none;
  if (!std::filesystem::is_regular_file(path, none)) return {};
  std::array<char, 16> first{};
  std::ifstream(path, std::ios::binary).read(first.data(), std::streamsize(first.size()));
  if (is_pack({reinterpret_cast<const std::uint8_t*>(first.data()), first.size()})) return {};
  return Error{Errc::usage, quoted(path) + " is there and is no packed file",
               "choose another --output, or remove it"};
}

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

Result<> write_all(const std::string& path, const std::vector<Dataset>& sets) {
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
  auto created = Output::create(path);
  if (!created) return std::move(created).error();
  Output& output = *created;
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
  return output.appear();
}

}  // namespace

Result<> pack_dataset(const std::vector<std::string>& inputs, const std::string& output) {
  if (inputs.empty()) return Error{Errc::usage, "nothing to pack", "train pack INPUT... --output FILE"};
  if (auto fine = check_target(output); !fine) return fine;
  std::vector<Dataset> sets;
  for (const auto& input : inputs) {
    auto data = open_dataset(input, 0);
    if (!data) return data.error();
    sets.push_back(std::move(*data));
  }
  if (auto fine = check_agreement(sets); !fine) return fine;
  return write_all(output, sets);
}

}  // namespace trainer
