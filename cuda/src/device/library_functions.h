// The driver's functions for libraries, which are images that belong to no context.
#pragma once

#include <cuda.h>

namespace cukern::cuda {

// From version 12.4 on; null where the driver has one not.
struct LibraryFunctions {
    decltype(&cuLibraryLoadData) load;
    decltype(&cuLibraryUnload) unload;
    decltype(&cuLibraryGetModule) module;
    decltype(&cuLibraryGetKernel) kernel;
    decltype(&cuLibraryGetGlobal) global;
    decltype(&cuLibraryGetManaged) managed;
    decltype(&cuLibraryGetKernelCount) kernel_count;
    decltype(&cuLibraryEnumerateKernels) enumerate;
    decltype(&cuKernelGetName) kernel_name;
    decltype(&cuKernelGetParamInfo) parameter_info;
    decltype(&cuKernelGetFunction) function;
    decltype(&cuFuncGetAttribute) attribute;
    decltype(&cuFuncSetAttribute) set_attribute;
    decltype(&cuOccupancyMaxPotentialBlockSize) occupancy;
    decltype(&cuLaunchKernelEx) launch;

    bool is_whole() const noexcept {
        return load != nullptr && unload != nullptr && module != nullptr && kernel != nullptr &&
               global != nullptr && managed != nullptr && kernel_count != nullptr && enumerate != nullptr &&
               kernel_name != nullptr && parameter_info != nullptr && function != nullptr &&
               attribute != nullptr && set_attribute != nullptr && occupancy != nullptr && launch != nullptr;
    }
};

// Looked up once.
const LibraryFunctions &library_functions() noexcept;

}  // namespace cukern::cuda
