// A regular file's bytes as they lie on disk, mapped. For the readers, which take spans and know no files.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "dlaunch/result.hpp"

namespace trainer {

using dlaunch::Errc;
using dlaunch::Error;
using dlaunch::Result;

class MappedFile {
 public:
  // Errors name the path. A file cut short by someone else while it is mapped ends the program (SIGBUS).
  static Result<MappedFile> open(const std::string& path);
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  std::span<const std::uint8_t> bytes() const { return bytes_; }

 private:
  explicit MappedFile(std::span<const std::uint8_t> bytes) : bytes_(bytes) {}

  std::span<const std::uint8_t> bytes_;
};

// 'path', as messages show it.
std::string quoted(const std::string& path);

}  // namespace trainer
