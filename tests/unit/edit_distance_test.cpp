#include "launcher/edit_distance.hpp"

#include <gtest/gtest.h>

namespace dlaunch {
namespace {

TEST(EditDistance, CountsInsertionsDeletionsAndChanges) {
  EXPECT_EQ(edit_distance("", ""), 0);
  EXPECT_EQ(edit_distance("", "abc"), 3);
  EXPECT_EQ(edit_distance("abc", ""), 3);
  EXPECT_EQ(edit_distance("nodes", "nnodes"), 1);
  EXPECT_EQ(edit_distance("nnodes", "nodes"), 1);
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3);
  EXPECT_EQ(edit_distance("tee", "tee"), 0);
}

TEST(EditDistance, NamesTheNearestOfSeveralWords) {
  EXPECT_EQ(nearest("nproc_pre_node", {"nnodes", "nproc_per_node", "node_rank"}), "nproc_per_node");
  EXPECT_EQ(nearest("nodes", {"node_rank", "nnodes"}), "nnodes");
}

TEST(EditDistance, NamesNothingWhenNothingIsNear) {
  EXPECT_EQ(nearest("lr", {"tee", "role", "nnodes"}), "");
  EXPECT_EQ(nearest("batch_size", {"master_addr", "nnodes"}), "");
}

}  // namespace
}  // namespace dlaunch
