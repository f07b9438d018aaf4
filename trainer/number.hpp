// A whole number that is all of a text: no sign but that of a negative one, no space, no rest.
#pragma once

#include <charconv>
#include <optional>
#include <string_view>

namespace trainer {

template <class Number>
std::optional<Number> number_in(std::string_view text) {
  Number number{};
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

}  // namespace trainer
