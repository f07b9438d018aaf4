// Who runs where in one round: the table from which every rank is computed. The coordinator makes
// it, Start carries it to every node. Ranks are prefix sums over the nodes, as torchrun's are.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "dlaunch/job.hpp"

namespace dlaunch {

struct NodePlace {
  std::string host;  // as the node calls itself, for messages
  int nproc = 1;     // workers on this node
  std::string role;
};

struct WorkerRank {
  int global = 0;  // 0 .. world_size - 1
  int local = 0;   // 0 .. nproc - 1 of its node
  int node = 0;
  int in_role = 0;  // counted among the nodes with the same role
};

struct Layout {
  std::vector<NodePlace> nodes;  // index: node rank

  int world_size() const;
  int first_rank(int node) const;
  int role_world_size(const std::string& role) const;
  WorkerRank rank_of(int node, int local) const;
};

// One attempt to run all workers, as a node is told of it. Nothing may cache a rank across rounds.
struct Round {
  int number = 0;  // TORCHELASTIC_RESTART_COUNT on all nodes
  Layout layout;
  int node = 0;             // this node's rank
  std::string master_addr;  // what this node's workers get
  std::uint16_t master_port = 0;
  StoreHost store = StoreHost::agent;
};

}  // namespace dlaunch
