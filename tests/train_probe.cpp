// The trainer's data, alone, for tests in other languages.
//   train_probe lists            lines "images ranks rank shuffle seed drop_last epoch" in, lists of indices
//   out train_probe show DATA        what open_dataset() finds, as JSON train_probe pack FILE DATA…
//   pack_dataset()
// Exit 2 and a message where that is refused.
#include <zlib.h>

#include <cstdio>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "trainer/data/open.hpp"
#include "trainer/data/sampler.hpp"

namespace {

using namespace trainer;

int refuse(const Error& error) {
  std::fprintf(stderr, "train_probe: %s\n  %s\n", error.text.c_str(), error.hint.c_str());
  return 2;
}

int lists() {
  SamplerOptions options;
  std::uint64_t epoch = 0;
  while (std::cin >> options.images >> options.ranks >> options.rank >> options.shuffle >> options.seed >>
         options.drop_last >> epoch) {
    for (const auto index : sample(options, epoch)) std::cout << index << ' ';
    std::cout << '\n';
  }
  return 0;
}

nlohmann::json describe(const Split& split) {
  const auto sum = [](std::span<const std::uint8_t> bytes) {
    return ::crc32_z(::crc32_z(0, nullptr, 0), bytes.data(), bytes.size());
  };
  return {{"size", split.size()}, {"images", sum(split.images)}, {"labels", sum(split.labels)}};
}

int show(const std::string& name) {
  auto data = open_dataset(name, 0);
  if (!data) return refuse(data.error());
  const nlohmann::json text = {{"shape", {data->shape.channels, data->shape.height, data->shape.width}},
                               {"classes", data->classes},
                               {"mean", data->mean},
                               {"deviation", data->deviation},
                               {"train", describe(data->train)},
                               {"test", describe(data->test)}};
  std::cout << text.dump() << '\n';
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string_view mode = argc > 1 ? argv[1] : "";
  if (mode == "lists") return lists();
  if (mode == "show" && argc == 3) return show(argv[2]);
  if (mode == "pack" && argc > 3) {
    auto packed = pack_dataset({argv + 3, argv + argc}, argv[2]);
    return packed ? 0 : refuse(packed.error());
  }
  std::fprintf(stderr, "usage: train_probe lists | show DATA | pack FILE DATA...\n");
  return 2;
}
