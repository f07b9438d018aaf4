#include "trainer/parallel/buckets.hpp"

#include <algorithm>

namespace trainer {

std::vector<Bucket> plan_buckets(const ModelSpec& spec, std::size_t bucket_bytes,
                                 std::size_t first_bucket_bytes) {
  std::vector<Bucket> buckets;
  auto end = kGradientHead + spec.parameter_count;
  auto begin = end;  // of the bucket that is being filled
  auto limit = [&] {
    auto bytes = buckets.empty() ? first_bucket_bytes : bucket_bytes;
    return bytes / sizeof(float);
  };
  auto close = [&] {
    if (begin < end) buckets.push_back({begin, end});
    end = begin;
  };
  for (auto parameter = spec.parameters.rbegin(); parameter != spec.parameters.rend(); ++parameter) {
    auto first = kGradientHead + parameter->offset;
    if (end > begin && end - first > limit()) close();
    // A parameter larger than a bucket is cut, unless every parameter has a bucket of its own.
    while (limit() > 0 && end - first > limit()) {
      begin = end - limit();
      close();
    }
    begin = first;
    if (limit() == 0) close();
  }
  begin = 0;
  if (!buckets.empty() && end == kGradientHead) {  // the head has no bucket of its own
    buckets.back().begin = 0;
    return buckets;
  }
  close();
  return buckets;
}

}  // namespace trainer
