// Reads and writes safetensors files: 8 bytes of header length (little-endian), a JSON header with the type,
// shape and place of each tensor and a text map "__metadata__", then the data.
// Format: https://huggingface.co/docs/safetensors. Only F32 tensors are known.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "dlaunch/result.hpp"

namespace trainer {

using dlaunch::Errc;
using dlaunch::Error;
using dlaunch::Result;

struct Tensor {
  std::string name;
  std::vector<std::int64_t> shape;
  std::vector<float> values;
};

struct TensorFile {
  std::vector<Tensor> tensors;
  std::map<std::string, std::string> metadata;
  const Tensor* find(const std::string& name) const;
};

// The file appears whole or not at all, and is on the disk when this returns: written beside, flushed,
// renamed, and the folder flushed. A checksum goes into the metadata ("xxh64"): of the header, with zeros for
// its own digits, and the data.
Result<> write_tensors(const std::string& path, const TensorFile& file);
// Errors name the file and the offset. A checksum that is there must be right; files of others have none.
// Tensors come in the order of their places.
Result<TensorFile> read_tensors(const std::string& path);

}  // namespace trainer
