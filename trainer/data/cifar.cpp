#include "trainer/data/cifar.hpp"

#include <algorithm>

namespace trainer {

Result<> parse_cifar(std::span<const std::uint8_t> file, std::size_t records,
                     std::vector<std::uint8_t>& images, std::vector<std::uint8_t>& labels) {
  const std::size_t size = records * kCifarRecord;
  if (file.size() != size) {
    return at_byte(std::min(file.size(), size), "the file has " + std::to_string(file.size()) +
                                                    " bytes instead of " + std::to_string(records) +
                                                    " records of " + std::to_string(kCifarRecord));
  }
  for (std::size_t i = 0; i < records; ++i) {
    const auto record = file.subspan(i * kCifarRecord, kCifarRecord);
    if (record[0] >= kCifarClasses) {
      return at_byte(i * kCifarRecord, "label " + std::to_string(record[0]) + " of image " +
                                           std::to_string(i) + " is not one of the " +
                                           std::to_string(kCifarClasses) + " classes");
    }
    labels.push_back(record[0]);
    images.insert(images.end(), record.begin() + 1, record.end());
  }
  return {};
}

}  // namespace trainer
