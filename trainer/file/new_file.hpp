// A file that appears under its name whole or not at all, and outlives a loss of power once it has appeared:
// written beside under another name, flushed, renamed, and the folder flushed. What a killed process leaves
// is "NAME.<16 hex digits>.tmp"; is_unfinished() tells it, so that whoever owns the folder can remove it.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <utility>

#include "dlaunch/result.hpp"

namespace trainer {

class NewFile {
 public:
  static dlaunch::Result<NewFile> create(std::string path);
  NewFile(NewFile&& other) noexcept
      : path_(std::move(other.path_)), beside_(std::move(other.beside_)), fd_(std::exchange(other.fd_, -1)) {}
  NewFile& operator=(NewFile&&) = delete;
  ~NewFile();  // without appear(): nothing stays

  dlaunch::Result<> write(std::span<const std::byte> bytes);
  dlaunch::Result<> appear();  // once, at the end

 private:
  NewFile(std::string path, std::string beside, int fd)
      : path_(std::move(path)), beside_(std::move(beside)), fd_(fd) {}
  dlaunch::Error failed(const char* call) const;

  std::string path_;
  std::string beside_;
  int fd_;
};

// Is `name` what an interrupted NewFile of the file `of` left?
bool is_unfinished(const std::string& name, const std::string& of);

}  // namespace trainer
