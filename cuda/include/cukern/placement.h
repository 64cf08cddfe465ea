// Where a call on arrays of the host's memory runs: on the processor's threads, or through the device.
//
// Idea: both times are estimated from the call (operation, element types, sizes, layouts), the number of threads
// and the device, by constants of machines that were measured (benchmarks/placement_model.py). Nothing that is
// measured in the process counts, so that a call gives the same bits each time.
#pragma once

#include "cukern/operations.h"

namespace cukern {

constexpr int kNumPlacements = 3;
constexpr const char *kPlacementNames[kNumPlacements] = {"auto", "host", "device"};
constexpr const char *name_of(Placement placement) { return kPlacementNames[static_cast<int>(placement)]; }

// The calling thread's, by default the process's, which CUKERN_PLACEMENT gives (checked when the back-end is
// chosen).
Placement current_placement() noexcept;
// A thread's blocks of code that name a placement, by what stands for them. False: no memory for one more; and no
// such block of this thread to end.
bool begin_placement(const void *block, Placement placement) noexcept;
bool end_placement(const void *block) noexcept;

// What was chosen for a call whose arrays are all in host memory, never `automatic`, and why. Times are in
// seconds; 0 where they were not asked for, or there is no device.
struct PlacementChoice {
    Placement placement = Placement::host;
    const char *reason = "";
    double host = 0;
    double device = 0;
    int threads = 1;           // that the estimate of the host takes
    const char *machine = "";  // whose constants were taken
};

// `estimates`: give times although they decide nothing.
PlacementChoice choose_placement(const ElementwiseCall &call, const Execution &where,
                                 bool estimates = false) noexcept;
PlacementChoice choose_placement(const ReduceCall &call, const Execution &where, bool estimates = false) noexcept;
PlacementChoice choose_placement(const ScanCall &call, const Execution &where, bool estimates = false) noexcept;
PlacementChoice choose_placement(const MatmulCall &call, const Execution &where, bool estimates = false) noexcept;

}  // namespace cukern
