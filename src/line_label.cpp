#include "dlaunch/line_label.hpp"

namespace dlaunch {

std::string LineLabel::apply(std::string_view piece) {
  std::string labelled;
  labelled.reserve(piece.size() + piece.size() / 4 + label_.size());
  while (!piece.empty()) {
    std::size_t end = piece.find('\n');
    bool feed = end != std::string_view::npos;
    end = feed ? end + 1 : piece.size();
    // A carriage return is an end of its own unless it is half of "\r\n".
    auto back = piece.substr(0, end).find('\r');
    if (back != std::string_view::npos && !(feed && back + 2 == end)) end = back + 1;

    bool redraws = end == 1 && piece[0] == '\r';
    if (at_start_ && !redraws) labelled += label_;
    labelled += piece.substr(0, end);
    at_start_ = piece[end - 1] == '\n' || piece[end - 1] == '\r';
    piece.remove_prefix(end);
  }
  return labelled;
}

}  // namespace dlaunch
