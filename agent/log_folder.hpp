// The folder below which a dlaunch writes what its workers leave: <log_dir>/<run id>_<random>, kept; or,
// without --log_dir, a private temporary folder that is removed at the end. Made by the guard, which is
// the one that is still there when everything else has ended.
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
