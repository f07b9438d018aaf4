#include "agent/log_folder.hpp"

#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <random>

#include "dlaunch/log.hpp"
#include "dlaunch/log_plan.hpp"

namespace dlaunch {

namespace {

std::string random_tail() {
  constexpr char kAlphabet[] = "abcdefghijklmnopqrstuvwxyz0123456789";
  std::random_device device;
  std::string tail;
  for (int i = 0; i < 8; ++i) tail += kAlphabet[device() % (sizeof kAlphabet - 1)];
  return tail;
}

// A run id may be any text; a file name may not.
std::string as_file_name(std::string text) {
  for (char& c : text) {
    if (c == '/' || c == '\0') c = '_';
  }
  return text;
}

}  // namespace

Result<LogFolder> LogFolder::make(const Job& job, const Environment& environment) {
  LogFolder folder;
  std::string name = as_file_name(job.run_id) + "_" + random_tail();
  if (!job.log_dir.empty()) {
    folder.base_ = job.log_dir + "/" + name;
    std::error_code error;
    std::filesystem::create_directories(folder.base_, error);
    if (error) {
      return Error{Errc::usage, "--log_dir '" + job.log_dir + "': " + error.message(),
                   "name a folder that can be written"};
    }
    return folder;
  }
  std::string pattern = environment.get("TMPDIR").value_or("/tmp") + "/dlaunch_XXXXXX";
  bool made = ::mkdtemp(pattern.data()) != nullptr;
  if (wants_log_folder(job)) {
    if (!made) return last_error("a temporary folder for the logs ('" + pattern + "')", Errc::usage);
    folder.base_ = pattern + "/" + name;
    log::say("logs are in " + folder.base_);
  } else if (made) {
    folder.base_ = folder.temporary_ = pattern;
  }
  return folder;
}

LogFolder::~LogFolder() {
  if (temporary_.empty()) return;
  std::error_code ignored;
  std::filesystem::remove_all(temporary_, ignored);
}

}  // namespace dlaunch
