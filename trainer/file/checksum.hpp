// xxh64 of bytes that come in pieces: against torn and flipped bits, not against an enemy.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

namespace trainer {

class Checksum {
 public:
  Checksum();
  Checksum(const Checksum&) = delete;
  Checksum& operator=(const Checksum&) = delete;
  ~Checksum();

  void add(std::span<const std::byte> bytes);
  std::uint64_t value() const;
  std::string hex() const;  // of the value, 16 digits

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace trainer
