// Cuts the flat gradients into the pieces that are reduced one by one. Backward writes them from the end to
// the start, so bucket 0 is the last piece; it is smaller, so that the first reduction starts early. Buckets
// end where parameters do, as far as their size allows. Pure.
#pragma once

#include <cstddef>
#include <vector>

#include "trainer/model/spec.hpp"

namespace trainer {

// The flat gradient buffer starts with these floats, which travel with the last bucket; the parameters'
// gradients follow.
inline constexpr std::size_t kGradientHead = 16;
inline constexpr std::size_t kLossSlot = 0;  // the batch's mean loss
inline constexpr std::size_t kStopSlot = 1;  // above 0: a rank was asked to stop

struct Bucket {
  std::size_t begin = 0;  // floats of the gradient buffer, with its head
  std::size_t end = 0;
  bool operator==(const Bucket&) const = default;
};

// In the order of reduction; together they are the whole buffer of kGradientHead + parameter_count floats.
// Sizes in bytes; 0: a bucket per parameter.
std::vector<Bucket> plan_buckets(const ModelSpec& spec, std::size_t bucket_bytes,
                                 std::size_t first_bucket_bytes);

}  // namespace trainer
