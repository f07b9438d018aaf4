// Byte vectors of the store's wire format (data/tcpstore_vectors.json), read once. Each starts on an empty
// store and is a conversation: what connections send, and what must come back.
#pragma once

#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "dlaunch/store/protocol.hpp"

namespace dlaunch::store::test {

struct Step {
  enum class What { send, recv, silence, closed, close, pause };
  What what;
  int connection;
  std::string bytes = {};
  int milliseconds = 0;
  bool unordered = false;  // after an 8 byte count, strings in any order
};

struct Vector {
  std::string name;
  bool told_apart;  // false: only for a server that was told the dialect
  std::vector<Step> steps;
};

inline std::string from_hex(const std::string& hex) {
  std::string out;
  for (std::size_t i = 0; i + 1 < hex.size(); i += 2) {
    out.push_back(static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16)));
  }
  return out;
}

inline const std::vector<Vector>& vectors() {
  static const std::vector<Vector> all = [] {
    std::ifstream file(DLAUNCH_TEST_DATA "/tcpstore_vectors.json");
    const nlohmann::json document = nlohmann::json::parse(file);
    std::vector<Vector> out;
    for (const auto& vector : document["vectors"]) {
      Vector& v = out.emplace_back(Vector{vector["name"], vector.value("auto", true), {}});
      for (const auto& step : vector["steps"]) {
        const int connection = step.value("conn", 0);
        using What = Step::What;
        if (step.contains("send")) {
          v.steps.push_back({What::send, connection, from_hex(step["send"])});
        } else if (step.contains("recv")) {
          v.steps.push_back({What::recv, connection, from_hex(step["recv"]), 0, step.value("unordered_strings", false)});
        } else if (step.contains("silence_ms")) {
          v.steps.push_back({What::silence, connection, {}, step["silence_ms"]});
        } else if (step.contains("pause_ms")) {
          v.steps.push_back({What::pause, connection, {}, step["pause_ms"]});
        } else if (step.contains("closed")) {
          v.steps.push_back({What::closed, connection});
        } else {
          v.steps.push_back({What::close, connection});
        }
      }
    }
    return out;
  }();
  return all;
}

// PyTorch's two servers differ in corners, and its newer one is the model here. These vectors show the
// older one; each has a twin that shows the newer one.
inline bool shows_the_legacy_answer(const std::string& name) {
  static const std::set<std::string> names = {
      "1a/cset_does_not_wake", "1b/cset_does_not_wake", "2/cset_does_not_wake",
      "1a/get_missing_closes", "1b/get_missing_closes", "2/get_missing_closes",
      "1b/multi_get_missing_closes", "2/multi_get_missing_closes"};
  return names.contains(name);
}

// Old servers had no limits; the vectors disagree about them on purpose.
inline ProtocolLimits limits_of(const std::string& name) {
  ProtocolLimits limits;
  if (name.ends_with("/value_8MiB_plus_1_closes")) limits.old_value_bytes = 8 << 20;
  if (name == "1a/key_8193_ok") limits.key_bytes = 16 << 10;
  return limits;
}

inline bool same_strings(const std::string& got, const std::string& wanted) {
  const auto split = [](std::string_view text) {
    std::multiset<std::string> out;
    for (text.remove_prefix(8); text.size() >= 8;) {
      std::uint64_t length = 0;
      std::memcpy(&length, text.data(), 8);
      out.emplace(text.substr(8, length));
      text.remove_prefix(8 + length);
    }
    return out;
  };
  return got.size() == wanted.size() && got.substr(0, 8) == wanted.substr(0, 8) && split(got) == split(wanted);
}

inline std::string hex(std::string_view bytes) {
  static const char* digits = "0123456789abcdef";
  std::string out;
  for (const unsigned char c : bytes.substr(0, 64)) {
    out += digits[c >> 4];
    out += digits[c & 15];
  }
  return out;
}

// Little helpers to write requests down.
inline std::string u32(std::uint32_t n) { return std::string(reinterpret_cast<const char*>(&n), 4); }
inline std::string u64(std::uint64_t n) { return std::string(reinterpret_cast<const char*>(&n), 8); }
inline std::string vec(std::string_view text) { return u64(text.size()) + std::string(text); }
inline std::string code(int n) { return std::string(1, static_cast<char>(n)); }
inline const std::string kValidate = code(0) + u32(kMagic);

}  // namespace dlaunch::store::test
