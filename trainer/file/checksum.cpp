#include "trainer/file/checksum.hpp"

#include <cstdio>

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace trainer {

struct Checksum::State {
  XXH64_state_t sum;
};

Checksum::Checksum() : state_(std::make_unique<State>()) { XXH64_reset(&state_->sum, 0); }
Checksum::~Checksum() = default;

void Checksum::add(std::span<const std::byte> bytes) {
  if (!bytes.empty()) XXH64_update(&state_->sum, bytes.data(), bytes.size());
}

std::uint64_t Checksum::value() const { return XXH64_digest(&state_->sum); }

std::string Checksum::hex() const {
  char digits[17];
  std::snprintf(digits, sizeof digits, "%016llx", static_cast<unsigned long long>(value()));
  return digits;
}

}  // namespace trainer
