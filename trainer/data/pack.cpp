#include "trainer/data/pack.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <string_view>

#include "trainer/file/checksum.hpp"

namespace trainer {
namespace {

constexpr std::string_view kMagic = "TRNPACK\n";
constexpr std::uint64_t kVersion = 1;
constexpr std::size_t kChecksumBytes = 8;

std::uint64_t read(std::span<const std::uint8_t> file, std::size_t offset, std::size_t bytes) {
  std::uint64_t value = 0;
  for (std::size_t i = bytes; i-- > 0;) value = value << 8 | file[offset + i];
  return value;
}

float read_float(std::span<const std::uint8_t> file, std::size_t offset) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(read(file, offset, 4)));
}

void write(std::span<std::uint8_t> file, std::size_t offset, std::size_t bytes, std::uint64_t value) {
  for (std::size_t i = 0; i < bytes; ++i) file[offset + i] = static_cast<std::uint8_t>(value >> 8 * i);
}

std::size_t whole_pages(std::size_t bytes) { return (bytes + kPackPage - 1) / kPackPage * kPackPage; }

}  // namespace

PackLayout pack_layout(const ImageShape& shape, std::uint64_t train, std::uint64_t test) {
  PackLayout layout;
  layout.train_images = kPackPage;
  layout.test_images = layout.train_images + whole_pages(train * shape.pixels());
  layout.train_labels = layout.test_images + whole_pages(test * shape.pixels());
  layout.test_labels = layout.train_labels + train;
  layout.checksum = layout.test_labels + test;
  layout.bytes = layout.checksum + kChecksumBytes;
  return layout;
}

bool is_pack(std::span<const std::uint8_t> file) {
  return file.size() >= kMagic.size() &&
         std::equal(kMagic.begin(), kMagic.end(), file.begin(),
                    [](char a, std::uint8_t b) { return std::uint8_t(a) == b; });
}

Result<Dataset> parse_pack(std::span<const std::uint8_t> file) {
  if (!is_pack(file)) return at_byte(0, "not a packed file");
  if (file.size() < kPackPage) return at_byte(file.size(), "the file ends within its header");
  if (const auto version = read(file, 8, 4); version != kVersion) {
    return at_byte(8, "version " + std::to_string(version) + " is not " + std::to_string(kVersion));
  }
  const std::uint64_t channels = read(file, 12, 4), height = read(file, 16, 4), width = read(file, 20, 4);
  const std::uint64_t classes = read(file, 24, 4);
  const std::uint64_t train = read(file, 32, 8), test = read(file, 40, 8);
  for (const auto& [count, offset] : {std::pair{train, 32}, {test, 40}}) {
    if (within_limits(count, channels, height, width)) continue;
    return at_byte(offset, describe(count, channels, height, width) + " are out of range");
  }
  if (classes < 2 || classes > kMaxClasses)
    return at_byte(24, std::to_string(classes) + " classes are out of range");
  Dataset data;
  data.shape = {static_cast<int>(channels), static_cast<int>(height), static_cast<int>(width)};
  data.classes = static_cast<int>(classes);
  const PackLayout layout = pack_layout(data.shape, train, test);
  if (file.size() != layout.bytes) {
    return at_byte(std::min(file.size(), layout.bytes), "the file has " + std::to_string(file.size()) +
                                                            " bytes, its header promises " +
                                                            std::to_string(layout.bytes));
  }
  Checksum checksum;
  checksum.add(std::as_bytes(file.first(layout.checksum)));
  if (checksum.value() != read(file, layout.checksum, kChecksumBytes)) {
    return at_byte(layout.checksum, "the checksum does not fit the bytes before it");
  }
  for (std::size_t c = 0; c < channels; ++c) {
    data.mean.push_back(read_float(file, 48 + 8 * c));
    data.deviation.push_back(read_float(file, 52 + 8 * c));
    if (!std::isfinite(data.mean[c]) || !std::isfinite(data.deviation[c]) || data.deviation[c] <= 0) {
      return at_byte(48 + 8 * c, "mean and deviation of channel " + std::to_string(c) + " are no such thing");
    }
  }
  data.train = {file.subspan(layout.train_images, train * data.shape.pixels()),
                file.subspan(layout.train_labels, train)};
  data.test = {file.subspan(layout.test_images, test * data.shape.pixels()),
               file.subspan(layout.test_labels, test)};
  for (const auto& [split, first] :
       {std::pair{&data.train, layout.train_labels}, {&data.test, layout.test_labels}}) {
    if (auto fine = check_labels(split->labels, data.classes, first, 1); !fine) return fine.error();
  }
  return data;
}

std::vector<std::uint8_t> pack_header(const Dataset& data, std::uint64_t train, std::uint64_t test) {
  std::vector<std::uint8_t> header(kPackPage);
  std::copy(kMagic.begin(), kMagic.end(), header.begin());
  write(header, 8, 4, kVersion);
  write(header, 12, 4, static_cast<std::uint64_t>(data.shape.channels));
  write(header, 16, 4, static_cast<std::uint64_t>(data.shape.height));
  write(header, 20, 4, static_cast<std::uint64_t>(data.shape.width));
  write(header, 24, 4, static_cast<std::uint64_t>(data.classes));
  write(header, 32, 8, train);
  write(header, 40, 8, test);
  for (std::size_t c = 0; c < data.mean.size(); ++c) {
    write(header, 48 + 8 * c, 4, std::bit_cast<std::uint32_t>(data.mean[c]));
    write(header, 52 + 8 * c, 4, std::bit_cast<std::uint32_t>(data.deviation[c]));
  }
  return header;
}

}  // namespace trainer
