#include "trainer/parallel/buckets.hpp"

#include <algorithm>

namespace trainer {

std::vector<Bucket> plan_buckets(const ModelSpec& spec, std::size_t bucket_bytes,
                                 std::size_t first_bucket_bytes) {
  std::vector<Bucket> buckets;
  std::size_t parameter =
      spec.parameters.size();  // those before it are not in a bucket yet, at least in part
  std::size_t end = kGradientHead + spec.parameter_count;
  while (parameter > 0) {
    const std::size_t bytes = buckets.empty() ? first_bucket_bytes : bucket_bytes;
    const std::size_t limit = std::max<std::size_t>(bytes / sizeof(float), 1);
    std::size_t begin = end;
    while (parameter > 0) {
      const std::size_t start = kGradientHead + spec.parameters[parameter - 1].offset;
      const bool fits = bytes == 0 ? begin == end : end - start <= limit;
      if (!fits) break;
      begin = start;
      --parameter;
    }
    if (begin == end) begin = end - limit;  // a parameter that is too large for any bucket is cut
    buckets.push_back({begin, end});
    end = begin;
  }
  if (buckets.empty()) buckets.push_back({0, end});
  buckets.back().begin = 0;
  return buckets;
}

}  // namespace trainer
