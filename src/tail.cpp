#include "dlaunch/tail.hpp"

#include <algorithm>
#include <cctype>
#include <cstring>

namespace dlaunch {
namespace {

using std::string_view;

// Two blocks this close after each other are one failure being told twice.
constexpr std::chrono::seconds kSameFailure{1};

bool starts_with_any(string_view line, auto& heads) {
  return std::any_of(std::begin(heads), std::end(heads),
                     [&](string_view head) { return line.starts_with(head); });
}

// PyTorch prints each line of an uncaught exception behind "[rank3]: ".
string_view without_rank(string_view line) {
  if (!line.starts_with("[rank")) return line;
  auto end = line.find_first_not_of("0123456789", 5);
  if (end == 5 || end == string_view::npos || !line.substr(end).starts_with("]:")) return line;
  line.remove_prefix(end + 2);
  if (line.starts_with(' ')) line.remove_prefix(1);
  return line;
}

// The text may follow a progress bar on the same line.
bool is_traceback_head(string_view line) { return line.ends_with("Traceback (most recent call last):"); }

constexpr string_view kChain[] = {"During handling of the above exception, another exception occurred:",
                                  "The above exception was the direct cause of the following exception:"};

constexpr string_view kFatalHeads[] = {"terminate called",
                                       "libc++abi: ",
                                       "Fatal Python error: ",
                                       "Fatal glibc error: ",
                                       "*** Aborted at ",
                                       "*** SIG",
                                       "*** stack smashing detected ***",
                                       "*** buffer overflow detected ***",
                                       "!!!!!!! Segfault encountered",
                                       "double free or corruption",
                                       "corrupted ",
                                       "free(): ",
                                       "malloc(): ",
                                       "malloc_consolidate(): ",
                                       "munmap_chunk(): ",
                                       "realloc(): "};

constexpr string_view kSignalTexts[] = {
    "Segmentation fault",   "Aborted", "Bus error", "Illegal instruction", "Floating point exception",
    "Trace/breakpoint trap"};

bool is_fatal_head(string_view line) {
  if (line.empty()) return false;
  // Most lines begin with a letter that none of the heads has.
  static constexpr string_view kFirst = "tlF*!dcfmrSABIT=";
  if (kFirst.find(line.front()) != string_view::npos) {
    if (starts_with_any(line, kFatalHeads)) return true;
    if (line.starts_with("==") && line.find("==ERROR: ") != string_view::npos) return true;
    string_view text = line;
    if (text.ends_with(" (core dumped)")) text.remove_suffix(std::strlen(" (core dumped)"));
    if (std::find(std::begin(kSignalTexts), std::end(kSignalTexts), text) != std::end(kSignalTexts))
      return true;
  }
  return line.ends_with("' failed.") && line.find(": Assertion `") != string_view::npos;
}

// Lines without indentation that belong to a block that began above them.
constexpr string_view kContinued[] = {"frame #",
                                      "C++ CapturedTraceback",
                                      "Exception raised from ",
                                      "CUDA kernel errors might",
                                      "Compile with `TORCH_USE_CUDA_DSA`",
                                      "For debugging consider passing CUDA_LAUNCH_BLOCKING",
                                      "Device-side assertion",
                                      "Search for `cuda",
                                      "Last error:",
                                      "ncclSystemError: ",
                                      "ncclInternalError: ",
                                      "ncclInvalidUsage: ",
                                      "ncclRemoteError: ",
                                      "ncclUnhandledCudaError: ",
                                      "Thread 0x",
                                      "Current thread ",
                                      "Extension modules: ",
                                      "Python runtime state: ",
                                      "<no Python frame>",
                                      "PC: @",
                                      "@ "};

bool is_indented_or_blank(string_view line) {
  return line.empty() || line.front() == ' ' || line.front() == '\t';
}

// "ValueError: text", "torch.cuda.OutOfMemoryError: text", "KeyboardInterrupt"
bool names_an_exception(string_view line) {
  auto is_part = [](unsigned char c) { return std::isalnum(c) || c == '_' || c == '.' || c >= 0x80; };
  auto end = std::find_if_not(line.begin(), line.end(), is_part);
  if (end == line.begin() || std::isdigit(static_cast<unsigned char>(line.front()))) return false;
  return end == line.end() || *end == ':';
}

// Where the last kMaxLines lines of `bytes` begin.
std::size_t start_of_newest(string_view bytes) {
  std::size_t at = bytes.size();
  for (std::size_t lines = 0; lines <= Tail::kMaxLines; ++lines) {
    if (at == 0) return 0;
    at = bytes.rfind('\n', at - 1);
    if (at == string_view::npos) return 0;
  }
  return at + 1;
}

}  // namespace

Tail::State Tail::after(State state, string_view line, Clock::time_point now) {
  if (state.block == Block::none && line.size() < 5) return state;
  line = without_rank(line);
  if (line.ends_with('\r')) line.remove_suffix(1);

  bool traceback = is_traceback_head(line);
  if (traceback || is_fatal_head(line)) {
    bool same = state.block != Block::none && now - state.last <= kSameFailure;
    return {traceback ? Block::traceback : Block::fatal, same ? state.began : now, now};
  }
  if (state.block == Block::none) return state;
  State continued{state.block, state.began, now};
  if (is_indented_or_blank(line) || starts_with_any(line, kContinued)) return continued;
  if (state.block == Block::traceback && names_an_exception(line)) {
    continued.block = Block::traceback_named;
    return continued;
  }
  if (state.block == Block::traceback_named && starts_with_any(line, kChain)) return continued;
  return {};
}

void Tail::feed(string_view bytes, Clock::time_point now) {
  // A worker may say much more than is remembered: lines that others of the same bytes push out are
  // looked at, and not copied.
  std::size_t kept_from = start_of_newest(bytes);
  bool plain = bytes.find('\r') == string_view::npos;
  for (std::size_t at = 0; at < bytes.size();) {
    auto end = bytes.find('\n', at);
    string_view line = bytes.substr(at, end - at);
    bool whole = end != string_view::npos;
    if (plain && whole && partial_.empty()) {
      line = line.substr(0, kMaxLineBytes);
      redrawn_ = false;
      state_ = after(state_, line, now);
      if (at >= kept_from) ring_[count_ % kMaxLines] = line;
      ++count_;
    } else {
      add_to_partial(line);
      partial_at_ = now;
      if (whole) end_line(now);
    }
    if (!whole) return;
    at = end + 1;
  }
}

void Tail::add_to_partial(string_view bytes) {
  if (redrawn_ && !bytes.empty()) {
    partial_.clear();
    redrawn_ = false;
  }
  if (bytes.ends_with('\r')) {
    redrawn_ = true;
    bytes.remove_suffix(1);
  }
  if (auto at = bytes.rfind('\r'); at != string_view::npos) {
    partial_.clear();
    bytes.remove_prefix(at + 1);
  }
  partial_ += bytes.substr(0, kMaxLineBytes - std::min(kMaxLineBytes, partial_.size()));
}

void Tail::end_line(Clock::time_point now) {
  redrawn_ = false;
  state_ = after(state_, partial_, now);
  partial_.swap(ring_[count_++ % kMaxLines]);
  partial_.clear();
}

std::vector<std::string> Tail::lines() const {
  std::vector<std::string> lines;
  std::size_t room = partial_.empty() ? kMaxLines : kMaxLines - 1;
  for (std::size_t i = count_ - std::min(count_, room); i < count_; ++i)
    lines.push_back(ring_[i % kMaxLines]);
  if (!partial_.empty()) lines.push_back(partial_);
  return lines;
}

std::optional<Clock::time_point> Tail::evidence() const {
  State state = state_;
  bool begins_a_chain = std::any_of(std::begin(kChain), std::end(kChain),
                                    [&](string_view text) { return text.starts_with(partial_); });
  if (!partial_.empty() && !begins_a_chain) state = after(state, partial_, partial_at_);
  if (state.block == Block::none) return std::nullopt;
  return state.began;
}

}  // namespace dlaunch
