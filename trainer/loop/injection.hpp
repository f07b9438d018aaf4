// `--inject rank=R,step=S,how=exit:N|kill|hang|slow:MS|nan|flip[,round=N|all]`: a fault on purpose, to show
// what a launcher and the other ranks make of it. Pure but for perform().
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "dlaunch/result.hpp"

namespace trainer {

struct Injection {
  enum class How { exit, kill, hang, slow, nan, flip };
  int rank = 0;
  std::int64_t step = 0;  // before this step, counted from 0 over all epochs; `slow`: from this step on
  How how = How::kill;
  int number = 0;                // exit's code, slow's milliseconds
  std::optional<int> round = 0;  // none: all
};

dlaunch::Result<Injection> parse_injection(const std::string& text);
bool applies(const Injection& injection, int rank, std::int64_t step, int round);

// exit, kill and hang do not return; slow sleeps; nan and flip are the loop's to do.
void perform(const Injection& injection);

}  // namespace trainer
