#include "trainer/data/npy.hpp"

#include <algorithm>
#include <cstring>
#include <optional>
#include <string_view>

namespace trainer {
namespace {

constexpr std::string_view kMagic = "\x93NUMPY";
constexpr std::size_t kMostHeader = 64 << 10;
constexpr std::size_t kMostDimensions = 4;

// The dictionary of the header: {'descr': '|u1', 'fortran_order': False, 'shape': (3, 28, 28), }
class HeaderText {
 public:
  explicit HeaderText(std::string_view text) : text_(text) {}

  std::size_t position() const { return position_; }
  bool at_end() { return peek() == '\0' && position_ == text_.size(); }

  bool take(char wanted) {
    if (peek() != wanted || position_ == text_.size()) return false;
    ++position_;
    return true;
  }

  std::optional<std::string_view> string() {
    const char quote = peek();
    if (quote != '\'' && quote != '"') return {};
    const std::size_t end = text_.find(quote, position_ + 1);
    if (end == text_.npos) return {};
    const auto found = text_.substr(position_ + 1, end - position_ - 1);
    position_ = end + 1;
    return found;
  }

  std::optional<bool> boolean() {
    peek();
    for (const auto& [word, value] : {std::pair{"True", true}, {"False", false}}) {
      if (!text_.substr(position_).starts_with(word)) continue;
      position_ += std::strlen(word);
      return value;
    }
    return {};
  }

  std::optional<std::uint64_t> number() {
    if (peek() < '0' || peek() > '9') return {};
    std::uint64_t value = 0;
    while (position_ < text_.size() && text_[position_] >= '0' && text_[position_] <= '9') {
      value = value * 10 + static_cast<std::uint64_t>(text_[position_++] - '0');
      if (value >> 48) return {};
    }
    return value;
  }

  std::optional<std::vector<std::uint64_t>> tuple() {
    if (!take('(')) return {};
    std::vector<std::uint64_t> values;
    while (!take(')')) {
      auto value = number();
      if (!value || values.size() == kMostDimensions) return {};
      values.push_back(*value);
      if (!take(',') && peek() != ')') return {};
    }
    return values;
  }

 private:
  // The next character that is no blank; 0 at the end.
  char peek() {
    while (position_ < text_.size() && (text_[position_] == ' ' || text_[position_] == '\n')) ++position_;
    return position_ < text_.size() ? text_[position_] : '\0';
  }

  std::string_view text_;
  std::size_t position_ = 0;
};

struct Fields {
  std::optional<std::string_view> type;
  std::optional<bool> fortran_order;
  std::optional<std::vector<std::uint64_t>> shape;
};

// False if the text is no such dictionary; `text` then stands where it goes wrong.
bool read_fields(HeaderText& text, Fields& fields) {
  if (!text.take('{')) return false;
  while (!text.take('}')) {
    const auto key = text.string();
    if (!key || !text.take(':')) return false;
    if (*key == "descr") {
      if (!(fields.type = text.string())) return false;
    } else if (*key == "fortran_order") {
      if (!(fields.fortran_order = text.boolean())) return false;
    } else if (*key == "shape") {
      if (!(fields.shape = text.tuple())) return false;
    } else {
      return false;
    }
    if (!text.take(',')) {
      if (!text.take('}')) return false;
      break;
    }
  }
  return text.at_end() && fields.type && fields.fortran_order && fields.shape;
}

std::string text_of(const std::vector<std::uint64_t>& shape) {
  std::string text = "(";
  for (std::size_t i = 0; i < shape.size(); ++i) text += (i ? ", " : "") + std::to_string(shape[i]);
  return text + ")";
}

std::int64_t little_endian(const std::uint8_t* bytes, std::size_t count) {
  std::uint64_t value = bytes[count - 1] & 0x80 ? ~std::uint64_t(0) : 0;
  for (std::size_t i = count; i-- > 0;) value = value << 8 | bytes[i];
  return static_cast<std::int64_t>(value);
}

}  // namespace

std::size_t npy_item_bytes(NpyType type) { return type == NpyType::u1 ? 1 : type == NpyType::i4 ? 4 : 8; }

Result<NpyArray> parse_npy(std::span<const std::uint8_t> file) {
  if (file.size() < kMagic.size() + 2) return at_byte(file.size(), "the file ends within its magic number");
  if (!std::equal(kMagic.begin(), kMagic.end(), file.begin(),
                  [](char a, std::uint8_t b) { return std::uint8_t(a) == b; })) {
    return at_byte(0, "not a .npy file");
  }
  const int version = file[6];
  if (version < 1 || version > 3 || file[7] != 0) {
    return at_byte(
        6, "version " + std::to_string(version) + "." + std::to_string(file[7]) + " is not 1.0, 2.0 or 3.0");
  }
  const std::size_t start = version == 1 ? 10 : 12;
  if (file.size() < start) return at_byte(file.size(), "the file ends within the length of its header");
  std::size_t length = 0;
  for (std::size_t i = start; i-- > 8;) length = length << 8 | file[i];
  if (length > kMostHeader || length > file.size() - start) {
    return at_byte(
        8, "a header of " + std::to_string(length) + " bytes is more than the file holds or may hold");
  }
  HeaderText text({reinterpret_cast<const char*>(file.data()) + start, length});
  Fields fields;
  if (!read_fields(text, fields)) return at_byte(start + text.position(), "the header is not understood");

  NpyArray array;
  if (*fields.type == "|u1") {
    array.type = NpyType::u1;
  } else if (*fields.type == "<i4") {
    array.type = NpyType::i4;
  } else if (*fields.type == "<i8") {
    array.type = NpyType::i8;
  } else {
    return at_byte(start, "numbers of type '" + std::string(*fields.type) + "' are not |u1, <i4 or <i8");
  }
  if (*fields.fortran_order)
    return at_byte(start, "an array in Fortran's order: save numpy.ascontiguousarray() of it");
  array.shape = std::move(*fields.shape);
  array.offset = start + length;
  array.content = file.subspan(array.offset);
  // By division, so that no product can overflow.
  std::uint64_t left = array.content.size() / npy_item_bytes(array.type);
  bool fits = array.content.size() % npy_item_bytes(array.type) == 0;
  for (const std::uint64_t size : array.shape) {
    fits = fits && size != 0 && left % size == 0;
    if (fits) left /= size;
  }
  if (!fits || left != 1) {
    return at_byte(array.offset, "an array of shape " + text_of(array.shape) + " and " +
                                     std::to_string(npy_item_bytes(array.type)) +
                                     " bytes a number is promised, " + std::to_string(array.content.size()) +
                                     " bytes follow");
  }
  return array;
}

Result<NpyImages> npy_images(const NpyArray& array, std::vector<std::uint8_t>& moved) {
  const auto& shape = array.shape;
  if (array.type != NpyType::u1 || (shape.size() != 3 && shape.size() != 4)) {
    return Error{Errc::usage,
                 "an array of shape " + text_of(shape) + " and " +
                     std::to_string(npy_item_bytes(array.type)) +
                     " bytes a number is not images: |u1 of (N, H, W), (N, C, H, W) or (N, H, W, C)"};
  }
  const bool channels_last = shape.size() == 4 && (shape[3] == 1 || shape[3] == 3);
  const std::uint64_t channels = shape.size() == 3 ? 1 : channels_last ? shape[3] : shape[1];
  const std::uint64_t height = channels_last || shape.size() == 3 ? shape[1] : shape[2];
  const std::uint64_t width = channels_last || shape.size() == 3 ? shape[2] : shape[3];
  if (!within_limits(shape[0], channels, height, width)) {
    return Error{Errc::usage, describe(shape[0], channels, height, width) + " are out of range"};
  }
  NpyImages found;
  found.shape = {static_cast<int>(channels), static_cast<int>(height), static_cast<int>(width)};
  found.images = array.content;
  if (channels_last && channels > 1) {
    const std::size_t plane = height * width;
    moved.resize(array.content.size());
    for (std::size_t image = 0; image < shape[0]; ++image) {
      const std::size_t first = image * plane * channels;
      for (std::size_t i = 0; i < plane; ++i) {
        for (std::size_t c = 0; c < channels; ++c)
          moved[first + c * plane + i] = array.content[first + i * channels + c];
      }
    }
    found.images = moved;
  }
  return found;
}

Result<std::span<const std::uint8_t>> npy_labels(const NpyArray& array, std::vector<std::uint8_t>& narrowed) {
  if (array.shape.size() != 1) {
    return Error{Errc::usage, "an array of shape " + text_of(array.shape) + " is not labels: (N,)"};
  }
  if (array.type == NpyType::u1) return array.content;
  const std::size_t item = npy_item_bytes(array.type);
  narrowed.resize(array.shape[0]);
  for (std::size_t i = 0; i < narrowed.size(); ++i) {
    const std::int64_t label = little_endian(array.content.data() + i * item, item);
    if (label < 0 || label >= kMaxClasses) {
      return at_byte(array.offset + i * item, "label " + std::to_string(label) + " of image " +
                                                  std::to_string(i) + " is not 0 to " +
                                                  std::to_string(kMaxClasses - 1));
    }
    narrowed[i] = static_cast<std::uint8_t>(label);
  }
  return std::span<const std::uint8_t>(narrowed);
}

}  // namespace trainer
