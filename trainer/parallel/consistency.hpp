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

// Whether all ranks were given the same, line by line as rank 0 has it; the error names a line that differs.
// Every rank calls it, with as many lines.
Result<> check_agreement(Collective& collective, const std::vector<std::string>& lines);

}  // namespace trainer
