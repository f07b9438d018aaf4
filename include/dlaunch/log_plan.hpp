// Which files and which console lines a worker's streams become: torchrun's layout, --log_file, and
// reading back the error.json that torch's @record leaves there. Pure.
#pragma once

#include <string>

#include "dlaunch/job.hpp"
#include "dlaunch/layout.hpp"

namespace dlaunch {

// Where one worker's streams go in one round.
struct WorkerLogs {
  std::string out_file;  // empty: none; the same as err_file with --log_file
  std::string err_file;  // empty: none
  bool console_out = true;
  bool console_err = true;
  bool append = false;    // --log_file in rounds after the first
  std::string label_out;  // in front of each console line: torchrun's "[default0]:" with --tee
  std::string label_err;
  std::string error_file;  // TORCHELASTIC_ERROR_FILE; empty: none
};

// `base` is <log_dir or private temporary folder>/<run id>_<random>, made once per agent by the
// caller; files are <base>/attempt_<round>/<local rank>/{stdout.log,stderr.log,error.json}; if nobody
// asked for files, <base>/error_<round>_<local rank>.json alone. Without a base there are no such files.
WorkerLogs plan_logs(const Job& job, const Round& round, int local_rank, const std::string& base);

// True if the user asked for files of torchrun's layout, so that --log_dir's folder must exist (a
// temporary one if it is not given, which a person then has to be told).
bool wants_log_folder(const Job& job);

// The message of an error.json as torch's @record writes it ("message" a string, or an object with
// a "message" in it). Never throws; empty if there is none, or if the file is broken or not yet whole.
std::string error_message(const std::string& json_text);

}  // namespace dlaunch
