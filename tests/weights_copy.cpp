// weights_copy FROM TO: reads weights of small_model() as the trainer does, and writes them as the trainer
// does.
#include <cstdio>

#include "small_model.hpp"
#include "trainer/checkpoint/checkpoint.hpp"

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  auto spec = trainer::small_model();
  auto weights = trainer::read_weights(argv[1], spec);
  if (!weights) {
    std::fprintf(stderr, "weights_copy: %s\n", weights.error().text.c_str());
    return 1;
  }
  auto written = trainer::write_weights(argv[2], spec, *weights);
  if (!written) std::fprintf(stderr, "weights_copy: %s\n", written.error().text.c_str());
  return written ? 0 : 1;
}
