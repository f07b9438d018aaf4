// The trainer's arithmetic, called from Python: numbers come raw on stdin (32 bits each) and go raw to
// stdout.
//     train_math_probe initial MODEL CHANNELS HEIGHT WIDTH CLASSES SEED [HIDDEN…]
//         -> parameters
//     train_math_probe gradients MODEL CHANNELS HEIGHT WIDTH CLASSES BATCH [HIDDEN…]
//         parameters, images, labels -> logits, loss, gradients
//     train_math_probe optimize sgd|adamw MOMENTUM DECAY CLIP STEPS OUT IN RATE…
//         parameters of a Linear(IN, OUT), gradients of each step -> parameters after each step
//     train_math_probe schedule NAME RATE WARMUP TOTAL EVERY GAMMA STEPS
//         -> doubles
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "trainer/device/cpu/cpu_device.hpp"
#include "trainer/model/network.hpp"
#include "trainer/optimizer/optimizer.hpp"
#include "trainer/optimizer/schedule.hpp"

namespace {

using namespace trainer;
using Arguments = std::vector<std::string>;

int number(const Arguments& arguments, std::size_t at) { return std::atoi(arguments.at(at).c_str()); }

[[noreturn]] void give_up(const std::string& why) {
  std::fprintf(stderr, "train_math_probe: %s\n", why.c_str());
  std::exit(1);
}

template <class T>
void read(T* values, std::size_t count) {
  if (std::fread(values, sizeof(T), count, stdin) != count) give_up("the input is too short");
}
template <class T>
void write(const T* values, std::size_t count) {
  if (std::fwrite(values, sizeof(T), count, stdout) != count) give_up("the output was not taken");
}
template <class T>
T must(Result<T> result) {
  if (!result) give_up(result.error().text);
  return std::move(*result);
}

std::unique_ptr<Device> open_device() {
  const auto module = host_module();
  return make_cpu_device(0, module ? (*module)->gemm : plain_gemm, "");
}

ModelSpec spec_of(const Arguments& arguments) {
  std::vector<int> hidden;
  for (std::size_t i = 7; i < arguments.size(); ++i) hidden.push_back(number(arguments, i));
  return must(make_model(
      arguments.at(1),
      {.channels = number(arguments, 2), .height = number(arguments, 3), .width = number(arguments, 4)},
      number(arguments, 5), hidden));
}

void initial(const Arguments& arguments) {
  const auto values =
      initial_parameters(spec_of(arguments), std::strtoull(arguments.at(6).c_str(), nullptr, 10));
  write(values.data(), values.size());
}

void gradients(const Arguments& arguments) {
  const ModelSpec spec = spec_of(arguments);
  const int batch = number(arguments, 6);
  const auto device = open_device();
  Network network = must(Network::create(*device, spec, batch));
  std::vector<float> images(std::size_t(batch) * spec.input.pixels());
  std::vector<std::int32_t> labels(static_cast<std::size_t>(batch));
  read(network.parameters(), spec.parameter_count);
  read(images.data(), images.size());
  read(labels.data(), labels.size());

  std::vector<float> logits_gradient(labels.size() * std::size_t(spec.classes)), all(spec.parameter_count);
  float loss = 0;
  const float* logits = network.forward(images.data(), batch);
  device->cross_entropy(logits_gradient.data(), &loss, logits, labels.data(), labels.size(), spec.classes,
                        1.0f / float(batch));
  network.backward(logits_gradient.data(), all.data(), /*accumulate=*/false);
  write(logits, logits_gradient.size());
  write(&loss, 1);
  write(all.data(), all.size());
}

void optimize(const Arguments& arguments) {
  const ModelSpec spec = must(make_model(
      "softmax", {.channels = 1, .height = 1, .width = number(arguments, 7)}, number(arguments, 6), {}));
  const auto real = [&](std::size_t at) { return std::strtof(arguments.at(at).c_str(), nullptr); };
  const float limit = real(4);
  const auto device = open_device();
  Optimizer optimizer = must(Optimizer::create(
      *device, spec, {.name = arguments.at(1), .momentum = real(2), .weight_decay = real(3)}));
  std::vector<float> parameters(spec.parameter_count), gradient(spec.parameter_count);
  read(parameters.data(), parameters.size());
  for (int step = 0; step < number(arguments, 5); ++step) {
    read(gradient.data(), gradient.size());
    float norm = 0;
    if (limit > 0) device->clip(gradient.data(), gradient.size(), limit, &norm);
    optimizer.step(parameters.data(), gradient.data(), real(8 + std::size_t(step)));
    write(parameters.data(), parameters.size());
  }
}

void schedule(const Arguments& arguments) {
  const auto real = [&](std::size_t at) { return std::strtod(arguments.at(at).c_str(), nullptr); };
  const Schedule schedule{.name = arguments.at(1),
                          .rate = real(2),
                          .warmup = number(arguments, 3),
                          .total = number(arguments, 4),
                          .step_every = number(arguments, 5),
                          .gamma = real(6)};
  for (int step = 0; step < number(arguments, 7); ++step) {
    const double rate = schedule.at(step);
    write(&rate, 1);
  }
}

}  // namespace

int main(int argc, char** argv) {
  const Arguments arguments(argv + 1, argv + argc);
  const std::string what = arguments.empty() ? "" : arguments[0];
  if (arguments.size() < 7) give_up("too few arguments");
  if (what == "initial") {
    initial(arguments);
  } else if (what == "gradients") {
    gradients(arguments);
  } else if (what == "optimize") {
    optimize(arguments);
  } else if (what == "schedule") {
    schedule(arguments);
  } else {
    give_up("no such call");
  }
}
