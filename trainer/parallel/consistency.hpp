// Whether all ranks still have the same parameters. They must, bit for bit: every rank applies the same sums
// to the same values. A rank that differs has a broken memory, device or library.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trainer/collective/collective.hpp"
#include "trainer/device/device.hpp"

namespace trainer {

// Pure: whose checksum is not the most frequent one (of equals, the one of the lowest rank).
std::vector<int> odd_ones_out(const std::vector<std::uint64_t>& checksums);

// Every rank calls it; the error names the ranks that differ. `parameters`: of the device.
Result<> check_parameters(Collective& collective, Device& device, const float* parameters, std::size_t count);

}  // namespace trainer
