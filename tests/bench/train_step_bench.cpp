// One training step on one thread, without loader or reduction: forward, loss, backward, SGD.
//     train_step_bench [--plain] [MODEL [BATCH [SECONDS]]]
// Without arguments the mlp (784-512-512-10) and the cnn at batches of 64 and 32. Prints medians; the
// processor's time is the steadier figure on a machine that others use as well.
#include <time.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "trainer/device/cpu/cpu_device.hpp"
#include "trainer/model/network.hpp"
#include "trainer/module/module.hpp"
#include "trainer/optimizer/optimizer.hpp"

namespace {

using namespace trainer;
using Clock = std::chrono::steady_clock;

double cpu_time() {
  timespec time{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return double(time.tv_sec) + double(time.tv_nsec) * 1e-9;
}

template <class T>
T must(Result<T> result) {
  if (result) return std::move(*result);
  std::fprintf(stderr, "%s\n", result.error().text.c_str());
  std::exit(1);
}

void measure(Gemm gemm, const std::string& model, int batch, double seconds) {
  const ModelSpec spec = must(make_model(model, {}, 10, {512, 512}));
  auto device = make_cpu_device(0, gemm, "");
  Network network = must(Network::create(*device, spec, batch));
  Optimizer optimizer = must(Optimizer::create(*device, spec, {}));
  const auto first = initial_parameters(spec, 1);
  std::copy(first.begin(), first.end(), network.parameters());

  const Memory images = must(device->allocate(std::size_t(batch) * spec.input.pixels() * sizeof(float)));
  const Memory gradients = must(device->allocate(spec.parameter_count * sizeof(float)));
  const Memory logits_gradient =
      must(device->allocate(std::size_t(batch) * std::size_t(spec.classes) * sizeof(float)));
  std::vector<std::int32_t> labels(static_cast<std::size_t>(batch));
  for (std::size_t i = 0; i < std::size_t(batch) * spec.input.pixels(); ++i) {
    images.floats()[i] = float(i * 2654435761u % 1000) / 1000 - 0.5f;
  }
  for (std::size_t i = 0; i < labels.size(); ++i) labels[i] = std::int32_t(i) % spec.classes;

  float loss = 0;
  const auto step = [&] {
    loss = 0;
    const float* logits = network.forward(images.floats(), batch);
    device->cross_entropy(logits_gradient.floats(), &loss, logits, labels.data(), labels.size(), spec.classes,
                          1.0f / float(batch));
    network.backward(logits_gradient.floats(), gradients.floats(), /*accumulate=*/false);
    optimizer.step(network.parameters(), gradients.floats(), 0.01f);
  };
  for (int i = 0; i < 5; ++i) step();
  std::vector<double> times, cpu_times;
  const auto end = Clock::now() + std::chrono::duration<double>(seconds);
  while (Clock::now() < end) {
    const auto begin = Clock::now();
    const double cpu_begin = cpu_time();
    step();
    times.push_back(std::chrono::duration<double>(Clock::now() - begin).count());
    cpu_times.push_back(cpu_time() - cpu_begin);
  }
  std::sort(times.begin(), times.end());
  std::sort(cpu_times.begin(), cpu_times.end());
  const double median = times[times.size() / 2];
  std::printf("%s batch %d: %.3f ms/step, %.0f images/s, %.0f by processor time, %.0f at best; loss %.4f\n",
              model.c_str(), batch, median * 1e3, batch / median, batch / cpu_times[cpu_times.size() / 2],
              batch / times.front(), double(loss));
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<std::string> arguments(argv + 1, argv + argc);
  Gemm gemm = plain_gemm;
  if (!arguments.empty() && arguments[0] == "--plain") {
    arguments.erase(arguments.begin());
  } else if (auto module = host_module()) {
    gemm = (*module)->gemm;
    std::printf("%s\n", (*module)->describe().c_str());
  } else {
    std::printf("%s; plain loops instead\n", module.error().text.c_str());
  }
  const double seconds = arguments.size() > 2 ? std::atof(arguments[2].c_str()) : 2;
  for (const std::string model : {"mlp", "cnn"}) {
    if (!arguments.empty() && arguments[0] != model) continue;
    for (int batch : {64, 32}) {
      if (arguments.size() > 1 && std::atoi(arguments[1].c_str()) != batch) continue;
      measure(gemm, model, batch, seconds);
    }
  }
}
