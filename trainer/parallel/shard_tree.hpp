// Adds the gradients of a rank's shards in a fixed binary tree, ((0+1)+(2+3))+…, which the tree reduction
// between the ranks continues: so the sum over all shards is the same, bit for bit, however they are spread
// over ranks.
//
// Like a binary counter: buffer l holds the sum of 2^l shards. The last shard is written into the result
// itself and completed range by range, so that its reduction may start before its backward has ended.
#pragma once

#include <cstddef>
#include <vector>

#include "trainer/device/device.hpp"

namespace trainer {

class ShardTree {
 public:
  // `shards`: of this rank, a power of two. `result`: `count` floats; outlives this, as the device does.
  static Result<ShardTree> create(Device& device, float* result, std::size_t count, int shards);

  // Where shard `index` is to write all its `count` floats; in order, from 0.
  float* target(int index);
  // Shard `index` has written. Not for the last, whose ranges are completed one by one.
  void add(int index);
  // The last shard's floats from `begin` to `end` are written: adds the others'.
  void complete(std::size_t begin, std::size_t end);

 private:
  ShardTree(Device& device, float* result, std::size_t count, int shards)
      : device_(&device), result_(result), count_(count), shards_(shards) {}

  Device* device_;
  float* result_;
  std::size_t count_;
  int shards_;
  std::vector<Memory> levels_;  // the last one is free for the shard in hand
};

}  // namespace trainer
