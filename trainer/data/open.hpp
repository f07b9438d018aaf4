// Finds out what `--data` names and reads it: a folder of IDX files (plain or .gz), of CIFAR-10 binaries or
// of .npy pairs, a file made by `train pack`, or the word `synthetic`.
#pragma once

#include <cstdint>
#include <string>

#include "trainer/data/dataset.hpp"

namespace trainer {

inline constexpr const char* kDefaultData = "/usr/share/datasets/fashion-mnist";

// Errors name the file and, for bad content, the offset; a missing default names the package to install.
// `seed` is for synthetic images alone.
Result<Dataset> open_dataset(const std::string& data, std::uint64_t seed);

// `train pack INPUT… --output FILE`: what open_dataset() reads from each input, one after the other, as one
// file. Inputs must agree about shape and classes. The file appears whole or not at all.
Result<> pack_dataset(const std::vector<std::string>& inputs, const std::string& output);

}  // namespace trainer
