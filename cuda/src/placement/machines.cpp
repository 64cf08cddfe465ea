#include "placement/machines.h"

#include <cstdlib>
#include <cstring>

namespace cukern {
namespace {

constexpr Machine kMachines[] = {
#include "placement/machines.inc"
};

// Of the processor's vectors, in those of the machines that were measured.
double vector_length() noexcept {
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512f") != 0) return 1;
    return __builtin_cpu_supports("avx2") != 0 ? 0.5 : 0.25;
#else
    return 0.25;
#endif
}

}  // namespace

Machine machine_of(const DeviceInfo &device) noexcept {
    const auto distance = [&device](const Machine &machine) {
        if (std::strcmp(machine.device, device.name) == 0) return -1;
        return std::abs(machine.multiprocessors - device.multiprocessors);
    };
    const Machine *nearest = &kMachines[0];
    for (const Machine &machine : kMachines)
        if (distance(machine) < distance(*nearest)) nearest = &machine;
    Machine scaled = *nearest;
    if (device.multiprocessors > 0) {
        const double part = static_cast<double>(device.multiprocessors) / nearest->multiprocessors;
        scaled.device_work *= part;
        for (double &rate : scaled.device_products) rate *= part;
    }
    for (double &rate : scaled.host_products) rate *= vector_length();
    return scaled;
}

}  // namespace cukern
