// Puts a label in front of each line of one stream, as --tee and --label ask for. Pure: pieces come
// from a LineAssembler, so a piece that ends without a line end is one that a person should see early.
#pragma once

#include <string>
#include <string_view>

namespace dlaunch {

class LineLabel {
 public:
  explicit LineLabel(std::string label) : label_(std::move(label)) {}

  // What is redrawn after a carriage return gets the label anew, or it would be painted over.
  std::string apply(std::string_view piece);
  // Something else was shown since: what comes next begins a line, even in the middle of one.
  void begin_line() { at_start_ = true; }

 private:
  std::string label_;
  bool at_start_ = true;
};

}  // namespace dlaunch
