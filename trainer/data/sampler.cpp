#include "trainer/data/sampler.hpp"

#include <cassert>
#include <numeric>
#include <random>
#include <utility>

namespace trainer {

std::size_t samples_per_rank(const SamplerOptions& options) {
  const auto ranks = static_cast<std::size_t>(options.ranks);
  return options.images / ranks + (options.images % ranks != 0 && !options.drop_last);
}

std::vector<std::uint32_t> sample(const SamplerOptions& options, std::uint64_t epoch) {
  const std::size_t images = options.images;
  // Beyond that PyTorch draws 64 bits for each swap. Readers refuse so many images.
  assert(images <= 0xffffffffu / 20);
  std::vector<std::uint32_t> mine;
  if (images == 0) return mine;
  std::vector<std::uint32_t> order(images);
  std::iota(order.begin(), order.end(), 0u);
  if (options.shuffle) {
    std::mt19937 random(static_cast<std::uint32_t>(options.seed + epoch));  // the low half alone, as there
    for (std::size_t i = 0; i + 1 < images; ++i) std::swap(order[i], order[i + random() % (images - i)]);
  }
  mine.resize(samples_per_rank(options));
  // What goes beyond the list starts again at its beginning, as often as it takes.
  for (std::size_t i = 0; i < mine.size(); ++i) {
    mine[i] = order[(static_cast<std::size_t>(options.rank) + i * static_cast<std::size_t>(options.ranks)) %
                    images];
  }
  return mine;
}

std::vector<std::uint32_t> slice_of(std::size_t images, int index, int count) {
  std::vector<std::uint32_t> mine;
  for (auto i = static_cast<std::size_t>(index); i < images; i += static_cast<std::size_t>(count)) {
    mine.push_back(static_cast<std::uint32_t>(i));
  }
  return mine;
}

}  // namespace trainer
