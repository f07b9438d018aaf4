#include "trainer/loop/evaluation.hpp"

#include <array>
#include <numeric>

#include "trainer/loop/feed.hpp"

namespace trainer {

Result<Evaluation> evaluate(Collective& collective, Device& device, Network& network, const Dataset& data,
                            int batch, const LoaderOptions& options) {
  auto loader = Loader::create(data, data.test, device, batch, options);
  if (!loader) return std::move(loader).error();
  auto feed = Feed::create(**loader, device, data.shape.pixels(), batch);
  if (!feed) return std::move(feed).error();
  auto memory = device.allocate(sizeof(Tally));
  if (!memory) return std::move(memory).error();
  auto* tally = static_cast<Tally*>(memory->data());

  auto part = [&](int rank) {
    return std::uint32_t(data.test.size() * std::size_t(rank) / std::size_t(collective.size()));
  };
  std::vector<std::vector<std::uint32_t>> batches;
  auto end = part(collective.rank() + 1);
  for (auto from = part(collective.rank()); from < end; from += std::uint32_t(batch)) {
    auto& indices = batches.emplace_back(std::min(std::uint32_t(batch), end - from));
    std::iota(indices.begin(), indices.end(), from);
  }
  (*loader)->start(std::move(batches));
  for (;;) {
    auto next = (*feed)->next();
    if (!next) return std::move(next).error();
    if (next->size == 0) break;
    const auto* logits = network.forward(next->images, next->size);
    device.evaluate(tally, logits, next->labels, std::size_t(next->size), data.classes);
  }
  Tally mine;
  device.download(&mine, tally, sizeof mine);
  auto done = device.synchronize();
  if (!done) return std::move(done).error();

  std::array<std::int64_t, 2> counts{mine.right, mine.images};
  done = collective.all_reduce(std::span<std::int64_t>(counts));
  if (done) done = collective.all_reduce(std::span<double>(&mine.loss, 1));
  if (!done) return std::move(done).error();
  auto images = double(std::max<std::int64_t>(counts[1], 1));
  return Evaluation{mine.loss / images, double(counts[0]) / images, counts[0], counts[1]};
}

}  // namespace trainer
