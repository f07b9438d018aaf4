#include "launcher/edit_distance.hpp"

#include <algorithm>
#include <numeric>

namespace dlaunch {

int edit_distance(std::string_view a, std::string_view b) {
  std::vector<int> row(b.size() + 1);
  std::iota(row.begin(), row.end(), 0);
  for (std::size_t i = 0; i < a.size(); ++i) {
    int diagonal = row[0]++;
    for (std::size_t j = 0; j < b.size(); ++j) {
      int changed = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({changed, row[j] + 1, diagonal + 1});
    }
  }
  return row.back();
}

std::string nearest(std::string_view word, const std::vector<std::string>& candidates) {
  int best = std::max(1, static_cast<int>(word.size()) / 3) + 1;
  std::string found;
  for (const auto& candidate : candidates) {
    if (int distance = edit_distance(word, candidate); distance < best) {
      best = distance;
      found = candidate;
    }
  }
  return found;
}

}  // namespace dlaunch
