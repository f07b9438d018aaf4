// What becomes of a worker's output: pure pieces without descriptors, each in its own header.
#pragma once

#include "dlaunch/line_assembler.hpp"
#include "dlaunch/log_plan.hpp"
#include "dlaunch/tail.hpp"
