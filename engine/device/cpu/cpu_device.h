/// The CPU: products through oneDNN in fixed tiles, everything else in loops compiled for several instruction sets.
#pragma once

#include <memory>

#include "engine/device/device.h"

namespace troupe::engine {

/// `num_threads` compute threads, the caller among them.
std::unique_ptr<Device> MakeCpuDevice(int num_threads);

/// The instruction set that products and kernels use on this machine: part of what must agree for the same bits.
const char* CpuInstructionSet();

}  // namespace troupe::engine
