#include "trainer/parallel/consistency.hpp"

#include <algorithm>
#include <map>
#include <span>

#include "trainer/collective/rank_names.hpp"
#include "trainer/file/checksum.hpp"

namespace trainer {

std::vector<int> odd_ones_out(const std::vector<std::uint64_t>& checksums) {
  std::map<std::uint64_t, int> votes;
  for (auto checksum : checksums) ++votes[checksum];
  auto right = checksums.empty() ? 0 : checksums[0];
  for (auto checksum : checksums) {
    if (votes[checksum] > votes[right]) right = checksum;
  }
  std::vector<int> odd;
  for (std::size_t rank = 0; rank < checksums.size(); ++rank) {
    if (checksums[rank] != right) odd.push_back(int(rank));
  }
  return odd;
}

Result<> check_parameters(Collective& collective, Device& device, const float* parameters,
                          std::size_t count) {
  if (collective.size() == 1) return {};
  std::vector<float> values(count);
  device.download(values.data(), parameters, count * sizeof(float));
  auto there = device.synchronize();
  if (!there) return there;
  Checksum checksum;
  checksum.add(std::as_bytes(std::span(values)));
  const auto mine = checksum.value();
  std::vector<std::uint64_t> all(std::size_t(collective.size()));
  auto gathered =
      collective.all_gather(std::as_bytes(std::span(&mine, 1)), std::as_writable_bytes(std::span(all)));
  if (!gathered) return gathered;
  auto odd = odd_ones_out(all);
  if (odd.empty()) return {};
  return Error{Errc::failed, rank_names(odd) + ": the parameters differ from those of the other ranks",
               "all ranks apply the same sums, so its memory, device or library is at fault"};
}

Result<> check_agreement(Collective& collective, const std::vector<std::string>& lines) {
  if (collective.size() == 1) return {};
  constexpr std::size_t kLine = 128;
  std::vector<char> first(lines.size() * kLine);
  if (collective.rank() == 0) {
    for (std::size_t i = 0; i < lines.size(); ++i) lines[i].copy(&first[i * kLine], kLine - 1);
  }
  auto shared = collective.broadcast(std::as_writable_bytes(std::span(first)), 0);
  if (!shared) return shared;
  std::string difference;
  for (std::size_t i = 0; i < lines.size() && difference.empty(); ++i) {
    if (lines[i].substr(0, kLine - 1) == &first[i * kLine]) continue;
    difference = "this rank has " + lines[i] + ", rank 0 " + &first[i * kLine];
  }
  std::int64_t differing = difference.empty() ? 0 : 1;
  auto counted = collective.all_reduce(std::span<std::int64_t>(&differing, 1));
  if (!counted) return counted;
  if (!difference.empty()) return Error{Errc::usage, difference, "give all ranks the same command line"};
  if (differing == 0) return {};
  return Error{Errc::usage, "another rank was given other flags; see its message"};
}

}  // namespace trainer
