#include "trainer/checkpoint/tensor_header.hpp"

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

namespace trainer {
namespace {

using dlaunch::Errc;
using dlaunch::Error;
using dlaunch::Result;
using Json = nlohmann::ordered_json;

constexpr auto kMetadata = "__metadata__";
constexpr std::string_view kBeforeChecksum = R"({"__metadata__":{"xxh64":")";
constexpr std::size_t kChecksumDigits = 16;

// Follows the grammar
//   {"name": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}, …, "__metadata__": {"key": "text",
//   …}}
// event by event. A JSON library would give the last of two equal keys; here the second is an error.
class HeaderReader : public nlohmann::json_sax<nlohmann::json> {
 public:
  TensorHeader header;
  std::optional<std::string> fault;
  std::string tensor;  // the one under way when the fault was found

  bool start_object(std::size_t) override {
    if (at_ == At::start) return go(At::names);
    if (at_ == At::value) return go(metadata_ ? At::metadata_keys : At::fields);
    return unexpected("an object");
  }
  bool key(std::string& text) override {
    switch (at_) {
      case At::names:
        if (!names_.insert(text).second) return wrong("is there twice");
        tensor = text;
        metadata_ = text == kMetadata;
        entry_ = {text, {}, 0, 0};
        fields_.clear();
        return go(At::value);
      case At::metadata_keys:
        key_ = text;
        if (header.metadata.count(text) > 0) return wrong("has the key '" + text + "' twice");
        return go(At::metadata_text);
      default:
        break;
    }
    if (!fields_.insert(text).second) return wrong("has the key '" + text + "' twice");
    if (text == "dtype") return go(At::dtype);
    if (text == "shape" || text == "data_offsets") {
      numbers_.clear();
      shape_ = text == "shape";
      return go(At::list);
    }
    return wrong("has the unknown key '" + text + "'");
  }
  bool end_object() override {
    if (at_ == At::metadata_keys) return go(At::names);
    if (at_ == At::names) return go(At::end);
    if (fields_.size() != 3) return wrong("needs dtype, shape and data_offsets");
    header.entries.push_back(std::move(entry_));
    return go(At::names);
  }
  bool start_array(std::size_t) override { return at_ == At::list ? go(At::numbers) : unexpected("a list"); }
  bool end_array() override {
    if (shape_) {
      entry_.shape = numbers_;
    } else {
      if (numbers_.size() != 2) return wrong("needs two data_offsets");
      entry_.begin = static_cast<std::uint64_t>(numbers_[0]);
      entry_.end = static_cast<std::uint64_t>(numbers_[1]);
    }
    return go(At::fields);
  }
  bool number_unsigned(std::uint64_t value) override {
    if (at_ != At::numbers) return unexpected("a number");
    if (value > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) {
      return wrong("has a number over 2^63: " + std::to_string(value));
    }
    numbers_.push_back(static_cast<std::int64_t>(value));
    return true;
  }
  bool string(std::string& text) override {
    if (at_ == At::metadata_text) {
      header.metadata[key_] = text;
      return go(At::metadata_keys);
    }
    if (at_ != At::dtype) return unexpected("a string");
    if (text != "F32") return wrong("is of type " + text + "; only F32 is read");
    return go(At::fields);
  }
  bool null() override { return unexpected("null"); }
  bool boolean(bool) override { return unexpected("a boolean"); }
  bool number_integer(std::int64_t value) override {
    return unexpected("the number " + std::to_string(value));
  }
  bool number_float(double, const std::string& text) override { return unexpected("the number " + text); }
  bool binary(nlohmann::json::binary_t&) override { return unexpected("binary data"); }
  bool parse_error(std::size_t position, const std::string&, const nlohmann::json::exception&) override {
    syntax_error = position;
    return false;
  }

  std::optional<std::size_t> syntax_error;  // bytes read by then

 private:
  enum class At { start, names, value, fields, dtype, list, numbers, metadata_keys, metadata_text, end };

  bool go(At at) {
    at_ = at;
    return true;
  }
  bool wrong(const std::string& what) {
    fault = (metadata_ ? std::string(kMetadata) : "tensor '" + tensor + "'") + " " + what;
    return false;
  }
  bool unexpected(const std::string& what) {
    if (!tensor.empty()) return wrong("has " + what + " where the format has none");
    fault = "the header has " + what + " where the format has none";
    return false;
  }

  At at_ = At::start;
  bool metadata_ = false;
  bool shape_ = false;
  std::string key_;
  std::set<std::string> names_;
  std::set<std::string> fields_;
  std::vector<std::int64_t> numbers_;
  TensorHeader::Entry entry_;
};

Error at(std::uint64_t byte, const std::string& text) {
  return Error{Errc::usage, "byte " + std::to_string(byte) + ": " + text};
}

// Where the header speaks of the tensor; its start if that is spelled in another way.
std::uint64_t place_of(std::string_view text, const std::string& tensor) {
  auto place = text.find("\"" + tensor + "\"");
  return kHeaderStart + (place == text.npos ? 0 : place);
}

}  // namespace

Result<std::uint64_t> element_count(const std::vector<std::int64_t>& shape) {
  std::uint64_t count = 1;
  for (auto size : shape) {
    if (size < 0) return Error{Errc::usage, "has a size of " + std::to_string(size)};
    if (__builtin_mul_overflow(count, static_cast<std::uint64_t>(size), &count) ||
        count > std::numeric_limits<std::int64_t>::max() / sizeof(float)) {
      return Error{Errc::usage, "is larger than any file"};
    }
  }
  return count;
}

Result<TensorHeader> parse_tensor_header(std::string_view text) {
  HeaderReader reader;
  bool good = nlohmann::json::sax_parse(text.begin(), text.end(), &reader);
  if (reader.syntax_error) {
    return at(kHeaderStart + *reader.syntax_error - (*reader.syntax_error > 0), "the header is no JSON");
  }
  if (!good) return at(place_of(text, reader.tensor), *reader.fault);

  auto& entries = reader.header.entries;
  std::sort(entries.begin(), entries.end(), [](const auto& one, const auto& other) {
    return std::pair(one.begin, one.end) < std::pair(other.begin, other.end);
  });
  std::uint64_t end = 0;
  for (const auto& entry : entries) {
    auto tensor = "tensor '" + entry.name + "' ";
    auto count = element_count(entry.shape);
    if (!count) return at(place_of(text, entry.name), tensor + count.error().text);
    if (entry.begin != end) {
      return at(place_of(text, entry.name), tensor + "begins at " + std::to_string(entry.begin) +
                                                " of the data, where the one before ends at " +
                                                std::to_string(end));
    }
    if (entry.end < entry.begin || entry.end - entry.begin != *count * sizeof(float)) {
      return at(place_of(text, entry.name),
                tensor + "needs " + std::to_string(*count * sizeof(float)) + " bytes, and has data_offsets " +
                    std::to_string(entry.begin) + " to " + std::to_string(entry.end));
    }
    end = entry.end;
  }
  return std::move(reader.header);
}

std::string tensor_header_text(const TensorHeader& header) {
  Json json = Json::object();
  if (!header.metadata.empty()) {
    Json metadata = Json::object();
    if (auto checksum = header.metadata.find("xxh64"); checksum != header.metadata.end()) {
      metadata["xxh64"] = checksum->second;
    }
    for (const auto& [key, text] : header.metadata) metadata[key] = text;
    json[kMetadata] = std::move(metadata);
  }
  for (const auto& entry : header.entries) {
    json[entry.name] = {{"dtype", "F32"}, {"shape", entry.shape}, {"data_offsets", {entry.begin, entry.end}}};
  }
  auto text = json.dump(-1, ' ', false, Json::error_handler_t::replace);
  text.append((8 - (kHeaderStart + text.size()) % 8) % 8, ' ');
  return text;
}

std::size_t checksum_place(std::string_view text) {
  bool ours = text.starts_with(kBeforeChecksum) && text.size() >= kBeforeChecksum.size() + kChecksumDigits;
  return ours ? kBeforeChecksum.size() : text.npos;
}

}  // namespace trainer
