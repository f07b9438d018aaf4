// Ranks in a message: "rank 2", "ranks 0, 3".
#pragma once

#include <string>
#include <vector>

namespace trainer {

inline std::string rank_names(const std::vector<int>& ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (std::size_t i = 0; i < ranks.size(); ++i) text += (i ? ", " : "") + std::to_string(ranks[i]);
  return text;
}

}  // namespace trainer
