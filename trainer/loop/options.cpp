#include "trainer/loop/options.hpp"

#include <CLI/CLI.hpp>
#include <cmath>
#include <memory>
#include <utility>

#include "trainer/data/open.hpp"

namespace trainer {
namespace {

// Both spellings of a flag: "--batch-size" is also "--batch_size".
std::string spelled(std::string dashed) {
  auto underscored = dashed;
  for (std::size_t i = 2; i < underscored.size(); ++i) {
    if (underscored[i] == '-') underscored[i] = '_';
  }
  return underscored == dashed ? dashed : dashed + "," + underscored;
}

// The help has its own words for what a flag takes.
CLI::Validator quiet(CLI::Validator validator) { return validator.description(""); }

CLI::Validator between(double low, double high) {
  return CLI::Validator(
      [low, high](const std::string& text) {
        double number = 0;
        auto good = CLI::detail::lexical_cast(text, number) && number >= low && number <= high;
        return good ? std::string()
                    : "'" + text + "' is no number from " + CLI::detail::to_string(low) + " to " +
                          CLI::detail::to_string(high);
      },
      "");
}

CLI::Validator from_zero() {
  return CLI::Validator(
      [](const std::string& text) {
        double number = 0;
        auto good = CLI::detail::lexical_cast(text, number) && number >= 0 && std::isfinite(number);
        return good ? std::string() : "'" + text + "' is no number from 0 on";
      },
      "");
}

// One line per flag, in two columns, with the first spelling alone.
class Help : public CLI::Formatter {
 public:
  Help() { column_width(30); }
  std::string make_option_name(const CLI::Option* option, bool positional) const override {
    if (positional) return option->get_name(true);
    std::string shown;
    for (const auto& name : option->get_snames()) shown += "-" + name + ", ";
    return shown + "--" + option->get_lnames().front();
  }
  std::string make_option_opts(const CLI::Option* option) const override {
    return option->get_type_size() == 0 ? "" : " " + option->get_type_name();
  }
  std::string make_option_desc(const CLI::Option* option) const override {
    auto text = option->get_description();
    const auto& value = option->get_default_str();
    return value.empty() || option->get_type_size() == 0 ? text : text + " [" + value + "]";
  }
};

class Parser {
 public:
  Parser() {
    options_.optimizer.momentum = 0.5f;
    app_.name("train");
    app_.formatter(std::make_shared<Help>());
    // As everywhere: of a flag that is given twice, the last counts.
    app_.option_defaults()->always_capture_default()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
    app_.set_version_flag("--version", std::string("train " DLAUNCH_VERSION), "");
    app_.get_option("--version")->description("print the version");
    app_.set_help_flag("-h,--help", "print this");
    app_.footer(
        "Flags may be written with dashes or underscores. Started by dlaunch, torchrun, mpirun with RANK and "
        "WORLD_SIZE\n"
        "set, or alone: dlaunch --nproc_per_node=2 train --epochs 1");
    data();
    model();
    length();
    parallel();
    keeping();
    telling();
    pack();
    allreduce();
    app_.require_subcommand(0, 1);
  }

  Result<Parsed> parse(int argc, const char* const* argv) {
    try {
      app_.parse(argc, argv);
    } catch (const CLI::CallForHelp&) {
      auto asked = app_.get_subcommands();
      return Parsed{{}, asked.empty() ? app_.help() : asked.front()->help("train", CLI::AppFormatMode::Sub)};
    } catch (const CLI::CallForVersion&) {
      return Parsed{{}, std::string("train " DLAUNCH_VERSION "\n")};
    } catch (const CLI::ParseError& error) {
      return Error{Errc::usage, error.what(), "train --help has all flags"};
    }
    return finish();
  }

 private:
  template <class T>
  CLI::Option* add(const char* group, const std::string& flag, T& value, const std::string& text,
                   const std::string& type = "N") {
    return app_.add_option(spelled(flag), value, text)->group(group)->type_name(type);
  }
  CLI::Option* flag(const char* group, const std::string& flag, bool& value, const std::string& text) {
    return app_.add_flag(spelled(flag), value, text)->group(group);
  }

  void data() {
    constexpr auto group = "Data";
    options_.data = kDefaultData;
    add(group, "--data", options_.data, "folder (IDX, CIFAR-10, .npy), packed file, synthetic", "WHERE");
    add(group, "--batch-size", options_.batch_size, "images per rank and pass [64]");
    add(group, "--global-batch", options_.global_batch, "images of all ranks per step, instead");
    add(group, "--test-batch-size", options_.test_batch_size, "images at once in evaluation")
        ->check(quiet(positive_));
    flag(group, "--drop-last", options_.drop_last,
         "drop what does not divide by the ranks, instead of repeating images");
    add(group, "--workers", options_.loader.workers, "threads that make batches; 0: none")
        ->check(quiet(CLI::Range(0, 256)));
    add(group, "--prefetch", options_.loader.prefetch, "batches made ahead")
        ->check(quiet(CLI::Range(1, 1024)));
  }
  void model() {
    constexpr auto group = "Model and optimizer";
    add(group, "--model", options_.model, "softmax, mlp or cnn", "NAME")
        ->check(quiet(CLI::IsMember({"softmax", "mlp", "cnn"})));
    add(group, "--hidden", options_.hidden, "widths of the mlp's hidden layers", "N,N")
        ->delimiter(',')
        ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
        ->check(quiet(positive_))
        ->default_str("512,512");
    add(group, "--optimizer", options_.optimizer.name, "sgd or adamw", "NAME")
        ->check(quiet(CLI::IsMember({"sgd", "adamw"})));
    add(group, "--lr", options_.rate, "learning rate", "X")->check(from_zero());
    add(group, "--momentum", options_.optimizer.momentum, "of sgd", "X")->check(between(0.0, 1.0));
    add(group, "--weight-decay", options_.optimizer.weight_decay, "none on biases", "X")->check(from_zero());
    add(group, "--lr-schedule", options_.schedule, "constant, step, cosine or linear", "NAME")
        ->check(quiet(CLI::IsMember({"constant", "step", "cosine", "linear"})));
    add(group, "--lr-step", options_.step_every, "of schedule step: steps between changes [an epoch]")
        ->check(quiet(positive_));
    add(group, "--gamma", options_.gamma, "of schedule step: the factor", "X")->check(from_zero());
    add(group, "--warmup", options_.warmup, "steps of rising learning rate")->check(from_zero());
    add(group, "--clip", options_.clip, "largest norm of the gradient; 0: any", "X")->check(from_zero());
    add(group, "--accumulate", options_.accumulate, "passes per step")->check(quiet(positive_));
    add(group, "--seed", options_.seed, "of first parameters and order");
  }
  void length() {
    constexpr auto group = "Length";
    add(group, "--epochs", options_.epochs, "passes over the training images [1]")->check(quiet(positive_));
    add(group, "--steps", options_.steps, "end after so many optimizer steps")->check(quiet(positive_));
  }
  void parallel() {
    constexpr auto group = "Ranks";
    auto& init = options_.init;
    add(group, "--init-method", init.url, "where ranks meet: env://, tcp://HOST:PORT, file:///PATH", "URL");
    add(group, "--rank", init.rank, "of this process [RANK]");
    add(group, "--world-size", init.world_size, "ranks in all [WORLD_SIZE]");
    add(group, "--local-rank", init.local_rank, "picks the GPU [LOCAL_RANK]");
    add(group, "--process-index", init.process_index, "this independent copy takes every N-th image: index");
    add(group, "--process-num", init.process_num, "and number of copies");
    add(group, "--backend", options_.backend, "auto, nccl or gloo", "NAME")
        ->check(quiet(CLI::IsMember({"auto", "nccl", "gloo"})));
    flag(group, "--no-cuda", options_.no_cuda, "compute on the CPU");
    add(group, "--reduce", reduce_, "fast, or tree: the same bits for 1, 2, 4 and 8 ranks", "HOW")
        ->check(quiet(CLI::IsMember({"fast", "tree"})));
    add(group, "--shards", options_.shards, "of tree: parts of a global batch, a power of two")
        ->check(quiet(positive_));
    add(group, "--bucket-mb", options_.bucket_mb, "gradients reduced at once; 0: one parameter", "MB")
        ->check(between(0.0, 4096.0));
    add(group, "--first-bucket-mb", options_.first_bucket_mb, "the same, for the first", "MB")
        ->check(between(0.0, 4096.0));
    add(group, "--check-every", options_.check_every,
        "steps between comparisons of all ranks' parameters; 0: none")
        ->check(from_zero());
    add(group, "--join-timeout", join_timeout_, "seconds for all ranks to come", "S")
        ->check(between(0.1, 1e6));
    add(group, "--timeout", timeout_, "seconds for one collective", "S")->check(between(0.1, 1e6));
    flag(group, "--no-shared-memory", options_.no_shared_memory,
         "gloo: sums go over sockets on one host, too");
    add(group, "--mode", options_.mode, "ddp, or dp: one process, all its devices", "NAME")
        ->check(quiet(CLI::IsMember({"ddp", "dp"})));
    add(group, "--device-ids", options_.device_ids, "of dp: the devices [all]", "N,N")
        ->delimiter(',')
        ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
        ->check(from_zero())
        ->default_str("");
    add(group, "--output-device", options_.output_device, "of dp: where the loss is computed [the first]");
    flag(group, "--compare", options_.compare, "measure dp beside ddp (--steps each), and end");
  }
  void keeping() {
    constexpr auto group = "Checkpoints";
    add(group, "--save", options_.save, "folder for checkpoints and model.safetensors", "DIR");
    add(group, "--save-every", options_.save_every, "steps between checkpoints; 0: at the end alone")
        ->check(from_zero());
    add(group, "--keep", options_.keep, "newest checkpoints that stay")->check(quiet(positive_));
    add(group, "--resume", options_.resume, "auto (the newest in --save's folder), or a checkpoint", "FILE");
    add(group, "--init", options_.init_weights, "start from these weights (safetensors)", "FILE");
    flag(group, "--save-model", options_.save_model,
         "write model.safetensors at the end, here without --save");
  }
  void telling() {
    constexpr auto group = "Reports and tests";
    auto every = app_.add_option("--log-every,--log_every,--log-interval,--log_interval", options_.log_every,
                                 "steps between lines of JSON (also --log-interval)");
    every->group(group)->type_name("N")->check(quiet(positive_));
    flag(group, "--digest", options_.digest, "print a digest of the parameters at the end");
    add(group, "--plot", options_.plot, "draw loss and throughput at the end", "FILE.svg");
    add(group, "--inject", injection_, "rank=R,step=S,how=exit:N|kill|hang|slow:MS|nan|flip[,round=N|all]",
        "FAULT");
  }
  void pack() {
    pack_ = app_.add_subcommand("pack", "merge data into one file that is mapped, for --data");
    pack_->add_option("inputs", options_.pack_inputs, "what --data takes")
        ->required()
        ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
        ->type_name("WHERE")
        ->default_str("");
    pack_->add_option("-o,--output", options_.pack_output, "the file to write")
        ->required()
        ->type_name("FILE");
  }
  void allreduce() {
    allreduce_ = app_.add_subcommand("allreduce", "time all-reduce over sizes, as nccl-tests do");
    allreduce_->fallthrough();
    allreduce_->add_option("--sizes", options_.sizes, "FROM:TO in bytes, doubled each time; or N,N")
        ->type_name("RANGE");
    allreduce_->add_option("--iterations", options_.iterations, "of each size")
        ->type_name("N")
        ->check(quiet(positive_));
  }

  Result<Parsed> finish() {
    if (*pack_) options_.command = Command::pack;
    if (*allreduce_) options_.command = Command::allreduce;
    if (options_.batch_size && options_.global_batch) {
      return Error{Errc::usage,
                   "--batch-size " + std::to_string(*options_.batch_size) + " and --global-batch " +
                       std::to_string(*options_.global_batch) + " exclude each other",
                   "--batch-size counts per rank, --global-batch all ranks together: give one of them"};
    }
    for (auto [flag, value] :
         {std::pair{"--batch-size", options_.batch_size}, {"--global-batch", options_.global_batch}}) {
      if (value && *value < 1)
        return Error{Errc::usage,
                     std::string(flag) + ": needs at least 1 image, got " + std::to_string(*value)};
    }
    options_.reduction = reduce_ == "tree" ? Reduction::tree : Reduction::fast;
    options_.init.timeout = Milliseconds(std::int64_t(join_timeout_ * 1000));
    options_.collective_timeout = Milliseconds(std::int64_t(timeout_ * 1000));
    if (!injection_.empty()) {
      auto injection = parse_injection(injection_);
      if (!injection) return std::move(injection).error().under("--inject '" + injection_ + "'");
      options_.injection = *injection;
    }
    if (!options_.device_ids.empty() && options_.mode != "dp" && !options_.compare) {
      return Error{Errc::usage, "--device-ids is for --mode dp",
                   "a rank's own device is chosen by --local-rank"};
    }
    if (options_.resume == "auto" && options_.save.empty()) {
      return Error{Errc::usage, "--resume auto needs --save DIR",
                   "the newest checkpoint in that folder is continued"};
    }
    return Parsed{std::move(options_), std::nullopt};
  }

  CLI::App app_{
      "Trains a small image network in parallel on one or more ranks, on GPUs (NCCL) or CPUs (Gloo)."};
  CLI::Range positive_{1, 1 << 30};
  CLI::App* pack_ = nullptr;
  CLI::App* allreduce_ = nullptr;
  Options options_;
  std::string reduce_ = "fast";
  std::string injection_;
  double join_timeout_ = 300;
  double timeout_ = 300;
};

}  // namespace

Result<Parsed> parse_options(int argc, const char* const* argv) { return Parser().parse(argc, argv); }

}  // namespace trainer
