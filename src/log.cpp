#include "dlaunch/log.hpp"

#include <poll.h>
#include <spdlog/logger.h>
#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/base_sink.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <memory>

namespace dlaunch::log {

namespace {

std::atomic<Level> g_level{Level::warning};

std::function<void(std::string)>& sink() {
  static std::function<void(std::string)> function;
  return function;
}

void write_to_stderr(std::string_view bytes) {
  while (!bytes.empty()) {
    ssize_t n = ::write(STDERR_FILENO, bytes.data(), bytes.size());
    if (n > 0) {
      bytes.remove_prefix(static_cast<std::size_t>(n));
    } else if (errno == EAGAIN) {  // somebody else made the shared description non-blocking
      pollfd ready{STDERR_FILENO, POLLOUT, 0};
      ::poll(&ready, 1, -1);
    } else if (errno != EINTR) {
      return;
    }
  }
}

void put(std::string line) { sink() ? sink()(std::move(line)) : write_to_stderr(line); }

// Threads do not share it: each line is formatted in a buffer of its own thread.
class LineSink : public spdlog::sinks::base_sink<spdlog::details::null_mutex> {
 protected:
  void sink_it_(const spdlog::details::log_msg& message) override {
    spdlog::memory_buf_t text;
    formatter_->format(message, text);
    put(std::string(text.data(), text.size()));
  }
  void flush_() override {}
};

void put_with_time(std::string_view text) {
  thread_local spdlog::logger logger = [] {
    spdlog::logger made("dlaunch", std::make_shared<LineSink>());
    made.set_formatter(std::make_unique<spdlog::pattern_formatter>("dlaunch: %Y-%m-%dT%H:%M:%S.%fZ %v",
                                                                   spdlog::pattern_time_type::utc));
    made.set_level(spdlog::level::debug);
    return made;
  }();
  logger.log(spdlog::level::debug, spdlog::string_view_t(text.data(), text.size()));
}

// A sentence to a person; with the level debug its time as well.
void tell(std::string_view text) {
  put("dlaunch: " + std::string(text) + "\n");
  if (level() == Level::debug) put_with_time("said=\"" + std::string(text.substr(0, text.find('\n'))) + "\"");
}

}  // namespace

bool set_level(std::string_view name) {
  std::string word(name);
  std::transform(word.begin(), word.end(), word.begin(), [](unsigned char c) { return std::tolower(c); });
  if (word == "debug") {
    g_level = Level::debug;
  } else if (word == "info") {
    g_level = Level::info;
  } else if (word == "warning" || word == "warn") {
    g_level = Level::warning;
  } else if (word == "error" || word == "critical" || word == "fatal") {
    g_level = Level::error;
  } else {
    return false;
  }
  return true;
}

Level level() { return g_level; }

void set_sink(std::function<void(std::string line)> function) { sink() = std::move(function); }

void say(std::string_view sentence) { tell(sentence); }

void warn(std::string_view sentence) {
  if (level() < Level::error) tell("warning: " + std::string(sentence));
}

void error(std::string_view sentence, std::string_view hint) {
  tell("error: " + std::string(sentence) + (hint.empty() ? "" : "\n  " + std::string(hint)));
}

void debug(std::string_view facts) {
  if (level() == Level::debug) put_with_time(facts);
}

}  // namespace dlaunch::log
