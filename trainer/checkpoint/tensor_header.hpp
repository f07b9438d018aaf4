// The header of a safetensors file, without the file: JSON text to places of tensors and back. Pure. Anything
// but the format's own grammar is refused while it is read, so that nothing of a strange file is kept.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "dlaunch/result.hpp"

namespace trainer {

constexpr std::uint64_t kHeaderStart = 8;                 // after the length
constexpr std::uint64_t kLargestHeader = 100 * 1000'000;  // the format's own limit

struct TensorHeader {
  struct Entry {
    std::string name;
    std::vector<std::int64_t> shape;
    std::uint64_t begin = 0;  // bytes from the start of the data; end - begin is 4 times the product of shape
    std::uint64_t end = 0;
  };
  std::vector<Entry> entries;  // one follows the other, without a gap
  std::map<std::string, std::string> metadata;

  std::uint64_t data_bytes() const { return entries.empty() ? 0 : entries.back().end; }
};

// Errors begin with "byte N: ", counted from the start of the file. All tensors must be F32.
dlaunch::Result<TensorHeader> parse_tensor_header(std::string_view text);

// Padded with spaces, so that the data begin at a multiple of 8 bytes. A metadata key "xxh64" comes first.
std::string tensor_header_text(const TensorHeader& header);

// Where the 16 digits of the checksum are in the text, if tensor_header_text() made it; else npos.
std::size_t checksum_place(std::string_view text);

// Floats of a tensor with this shape; an error if a size is negative or the bytes pass 2^63.
dlaunch::Result<std::uint64_t> element_count(const std::vector<std::int64_t>& shape);

}  // namespace trainer
