// Errors as values. Every function that can fail for a reason outside the program returns a
// Result; each layer adds the one thing it knows with under(), so that the text reads outside-in.
#pragma once

#include <boost/system/result.hpp>
#include <string>
#include <string_view>
#include <utility>

namespace dlaunch {

enum class Errc {
  usage,           // what was typed or exported cannot be used: exit 2
  bad_frame,       // bytes from a peer that no further byte can mend
  timed_out,       // a bounded wait ran out
  unreachable,     // a peer or a name cannot be reached now
  refused,         // a peer answered no
  not_found,       // a program, file or name does not exist
  not_executable,  // a program exists and cannot be run
  failed,          // the system refused a call
};

struct Error {
  Errc code = Errc::failed;
  std::string text;
  std::string hint = {};  // the next step, for a second, indented line; may be empty

  Error under(std::string_view outer) && {
    text.insert(0, std::string(outer) + ": ");
    return std::move(*this);
  }
};

template <class T = void>
struct [[nodiscard]] Result : boost::system::result<T, Error> {
  using Base = boost::system::result<T, Error>;
  Result(T value) : Base(boost::system::in_place_value, std::move(value)) {}
  Result(Error error) : Base(boost::system::in_place_error, std::move(error)) {}
};

template <>
struct [[nodiscard]] Result<void> : boost::system::result<void, Error> {
  using Base = boost::system::result<void, Error>;
  Result() : Base(boost::system::in_place_value) {}
  Result(Error error) : Base(boost::system::in_place_error, std::move(error)) {}
};

// An Error from errno: "open: No such file or directory".
Error last_error(std::string_view call, Errc code = Errc::failed);

}  // namespace dlaunch
