/// How much memory this process holds.
#pragma once

namespace troupe::actors {

/// The most that was ever resident.
///
/// Units  GiB
double PeakMemoryGib();

/// What is resident now; 0 when the system does not say.
///
/// Units  GiB
double MemoryGib();

}  // namespace troupe::actors
