// The folder below which a dlaunch writes what its workers leave. Log files that were asked for are kept:
// <log_dir>/<run id>_<random>, in a temporary folder that a person is told of without --log_dir. Else it
// is a private temporary folder for error files, removed at the end by the guard, which is the one that
// is still there when everything else has ended.
#pragma once

#include <string>

#include "dlaunch/environment.hpp"
#include "dlaunch/job.hpp"
#include "dlaunch/result.hpp"

namespace dlaunch {

class LogFolder {
 public:
  // An error if --log_dir cannot be made. Without one, a temporary folder that cannot be made is no
  // error: base() is empty then, and the workers get no error file.
  static Result<LogFolder> make(const Job& job, const Environment& environment);

  LogFolder(LogFolder&& other) noexcept { swap(other); }
  LogFolder& operator=(LogFolder&& other) noexcept {
    swap(other);
    return *this;
  }
  ~LogFolder();  // removes the temporary folder with all that is in it

  const std::string& base() const { return base_; }

 private:
  LogFolder() = default;
  void swap(LogFolder& other) noexcept {
    base_.swap(other.base_);
    temporary_.swap(other.temporary_);
  }

  std::string base_;
  std::string temporary_;  // to be removed
};

}  // namespace dlaunch
