// The last lines of a worker's stderr, bounded, whatever becomes of the stream, and whether they are
// evidence of a failure: a worker that dlaunch stopped while it was already dying left a Traceback
// or a fatal-signal block as the last thing it said.
#pragma once

#include <array>
#include <chrono>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "dlaunch/line_assembler.hpp"

namespace dlaunch {

class Tail {
 public:
  static constexpr std::size_t kMaxLines = 20;
  static constexpr std::size_t kMaxLineBytes = 1024;

  void feed(std::string_view bytes, Clock::time_point now);

  // Oldest first, an unfinished last line included, bytes as they came. Long lines are cut; of a line
  // that was drawn again and again with carriage returns the last state is kept.
  std::vector<std::string> lines() const;

  // When the block began that is the last thing on the stream, none if something else was printed
  // after it. Blocks, with PyTorch's "[rank0]: " in front or without:
  //   - a Python traceback: its head, indented or blank lines, then "Name: text" or "Name", and what
  //     CUDA and C++ errors put behind that; chained exceptions are one block;
  //   - what the C and C++ run time, Python's faulthandler, glog and PyTorch say at a fatal signal:
  //     "terminate called", "Fatal Python error", "*** SIGSEGV", "Segmentation fault", … and the
  //     frames that follow.
  std::optional<Clock::time_point> evidence() const;

 private:
  // How far a block of evidence has come.
  enum class Block { none, traceback, traceback_named, fatal };
  struct State {
    Block block = Block::none;
    Clock::time_point began{};
    Clock::time_point last{};
  };

  static State after(State state, std::string_view line, Clock::time_point now);
  void add_to_partial(std::string_view bytes);
  void end_line(Clock::time_point now);

  std::array<std::string, kMaxLines> ring_;  // line n is at n % kMaxLines
  std::size_t count_ = 0;                    // lines that ended
  std::string partial_;
  bool redrawn_ = false;  // a carriage return is the last byte of partial_'s line so far
  Clock::time_point partial_at_{};
  State state_;
};

}  // namespace dlaunch
