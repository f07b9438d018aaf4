#include "trainer/loop/commands.hpp"

#include <cstdio>
#include <iostream>

#include "trainer/data/open.hpp"
#include "trainer/loop/allreduce.hpp"
#include "trainer/loop/compare.hpp"
#include "trainer/loop/stop_signal.hpp"
#include "trainer/loop/training.hpp"

namespace trainer {
namespace {

Result<> allreduce(const Options& options, const std::vector<std::size_t>& sizes, Session& session) {
  return measure_allreduce(*session.device, *session.collective,
                           {sizes, options.iterations, options.reduction}, std::cout);
}

Result<> train(const Options& options, Session& session) {
  auto data = open_dataset(options.data, options.seed);
  if (!data) return std::move(data).error();
  if (options.compare) return compare(options, session, *data);
  heed_stop_signals();
  auto training = Training::create(options, session, *data);
  if (!training) return std::move(training).error();
  auto trained = (*training)->run();
  if (trained) trained = (*training)->conclude();
  return trained;
}

}  // namespace

Result<> run(const Options& options, const dlaunch::Environment& environment, int& rank) {
  if (options.command == Command::pack) {
    auto packed = pack_dataset(options.pack_inputs, options.pack_output);
    if (!packed) return std::move(packed).error().under("pack");
    return {};
  }
  auto place = place_of(options.init, environment);
  if (!place) return std::move(place).error();
  if (place->world_size > 1) rank = place->rank;
  if (options.compare && place->world_size == 1) return compare_under_launcher(options);
  auto sizes = parse_sizes(options.sizes);
  if (!sizes) return std::move(sizes).error().under("--sizes '" + options.sizes + "'");
  auto session = open_session(options, *place, environment);
  if (!session) return std::move(session).error();
  if (place->rank == 0) std::fprintf(stderr, "train: %s\n", session->choice.c_str());
  return options.command == Command::allreduce ? allreduce(options, *sizes, *session)
                                               : train(options, *session);
}

}  // namespace trainer
