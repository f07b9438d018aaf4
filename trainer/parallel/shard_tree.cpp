#include "trainer/parallel/shard_tree.hpp"

#include <bit>
#include <utility>

namespace trainer {

Result<ShardTree> ShardTree::create(Device& device, float* result, std::size_t count, int shards) {
  ShardTree tree(device, result, count, shards);
  auto levels = int(std::bit_width(unsigned(shards))) - 1;
  for (int i = 0; shards > 1 && i <= levels; ++i) {
    auto memory = device.allocate(count * sizeof(float));
    if (!memory) return std::move(memory).error().under("gradients of shards");
    tree.levels_.push_back(std::move(*memory));
  }
  return tree;
}

float* ShardTree::target(int index) { return index == shards_ - 1 ? result_ : levels_.back().floats(); }

void ShardTree::add(int index) {
  std::size_t level = 0;
  for (; index >> level & 1; ++level) device_->add(levels_.back().floats(), levels_[level].floats(), count_);
  std::swap(levels_[level], levels_.back());
}

void ShardTree::complete(std::size_t begin, std::size_t end) {
  for (std::size_t level = 0; level + 1 < levels_.size(); ++level) {
    device_->add(result_ + begin, levels_[level].floats() + begin, end - begin);
  }
}

}  // namespace trainer
