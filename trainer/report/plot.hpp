// Draws loss and throughput over the steps as an SVG file, for --plot.
#pragma once

#include <string>
#include <vector>

#include "dlaunch/result.hpp"
#include "trainer/report/metrics.hpp"

namespace trainer {

std::string plot_svg(const std::vector<MetricsLine>& lines, const std::string& title);
dlaunch::Result<> write_plot(const std::string& path, const std::vector<MetricsLine>& lines,
                             const std::string& title);

}  // namespace trainer
