// The machines that the estimates of placement were measured on.
#pragma once

#include "cukern/backend.h"

namespace cukern {

// Rates are in bytes, or multiply-adds, a nanosecond.
struct Machine {
    const char *device;    // as the driver names it
    int multiprocessors;   // that it has
    double thread_memory;  // of the host: what one thread reads and writes
    double most_memory;    // and all of them
    double host_call;      // nanoseconds: a call, and what waking other threads adds
    double host_threads;
    double small_call;        // through the device, of operands that kernels read over the link
    double large_call;        // of operands that are copied
    double thread_copies;     // over the link, by one thread
    double most_copies;       // by all of them
    double device_work;       // how many times as fast as one thread a device computes
    double host_rows;         // how many times as long as in host/costs.inc a row of the table takes
    double host_products[3];  // of one thread, in float32, float64 and integers
    double device_products[3];
};

// The constants for a device. Of one that was not measured: those of the one that has the most like number of
// multiprocessors, scaled by that, and the processor's by the vectors that it has.
Machine machine_of(const DeviceInfo &device) noexcept;

}  // namespace cukern
