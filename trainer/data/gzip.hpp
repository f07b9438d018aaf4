// Expands a .gz file of which the first bytes say how long the whole is. Pure.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "dlaunch/result.hpp"

namespace trainer {

bool is_gzip(std::span<const std::uint8_t> file);

// `promised` is given the first `head` expanded bytes (fewer if there are no more) and says how many there
// will be; never is more than that expanded, and never much more allocated than has been expanded. Errors
// name the byte of the compressed file, or of the content where they say so.
dlaunch::Result<std::vector<std::uint8_t>> expand_gzip(
    std::span<const std::uint8_t> file, std::size_t head,
    const std::function<dlaunch::Result<std::size_t>(std::span<const std::uint8_t>)>& promised);

}  // namespace trainer
