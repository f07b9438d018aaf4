#include "dlaunch/layout.hpp"

namespace dlaunch {

int Layout::world_size() const { return first_rank(static_cast<int>(nodes.size())); }

int Layout::first_rank(int node) const {
  int rank = 0;
  for (int i = 0; i < node; ++i) rank += nodes[i].nproc;
  return rank;
}

int Layout::role_world_size(const std::string& role) const {
  int size = 0;
  for (const auto& node : nodes) size += node.role == role ? node.nproc : 0;
  return size;
}

WorkerRank Layout::rank_of(int node, int local) const {
  int in_role = local;
  for (int i = 0; i < node; ++i) in_role += nodes[i].role == nodes[node].role ? nodes[i].nproc : 0;
  return {first_rank(node) + local, local, node, in_role};
}

}  // namespace dlaunch
