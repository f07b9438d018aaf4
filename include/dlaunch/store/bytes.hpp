// A run of bytes with a reference count, in one allocation. The store hands the same value to any
// number of waiting clients without copying it. The count is not atomic: all copies of a value live
// and die on the thread that made it.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <new>
#include <string_view>
#include <utility>

namespace dlaunch::store {

class Bytes {
 public:
  Bytes() = default;
  explicit Bytes(std::string_view text) { append(text); }
  Bytes(const Bytes& other) : block_(other.block_) {
    if (block_) ++block_->references;
  }
  Bytes(Bytes&& other) noexcept : block_(std::exchange(other.block_, nullptr)) {}
  Bytes& operator=(Bytes other) noexcept {
    std::swap(block_, other.block_);
    return *this;
  }
  ~Bytes() { release(); }

  std::string_view view() const {
    return block_ ? std::string_view(text(block_), block_->size) : std::string_view();
  }
  std::size_t size() const { return block_ ? block_->size : 0; }

  // Both leave every other holder's bytes as they were, and reuse the block if there is no other.
  // `text` may not point into this object.
  void assign(std::string_view text) {
    // A block much too large would hide memory from the cap on the sum of all values.
    if (block_ && (block_->references > 1 || block_->capacity / 2 > text.size() + kSlack)) release();
    if (block_) block_->size = 0;
    append(text);
  }
  void append(std::string_view tail) {
    const std::size_t before = size();
    if (!block_ || block_->references > 1 || block_->capacity - before < tail.size()) {
      grow(before + tail.size());
    }
    std::memcpy(text(block_) + before, tail.data(), tail.size());
    block_->size = before + tail.size();
  }

 private:
  struct Block {
    std::size_t references;
    std::size_t size;
    std::size_t capacity;
  };
  static constexpr std::size_t kSlack = 64;

  static char* text(Block* block) { return reinterpret_cast<char*>(block + 1); }

  void release() {
    if (block_ && --block_->references == 0) std::free(block_);
    block_ = nullptr;
  }

  void grow(std::size_t size) {
    // Appending byte by byte must not copy the whole value each time.
    std::size_t capacity = size;
    if (block_) capacity = size + size / 2;
    auto* fresh = static_cast<Block*>(std::malloc(sizeof(Block) + capacity));
    if (!fresh) throw std::bad_alloc();
    *fresh = {1, this->size(), capacity};
    if (block_) std::memcpy(text(fresh), text(block_), block_->size);
    release();
    block_ = fresh;
  }

  Block* block_ = nullptr;
};

}  // namespace dlaunch::store
