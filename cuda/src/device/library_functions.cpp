#include "device/library_functions.h"

#include "device/driver.h"

namespace cukern::cuda {

const LibraryFunctions &library_functions() noexcept {
    constexpr unsigned kVersion = 12040;
    static const LibraryFunctions found = {
        look_up<decltype(LibraryFunctions::load)>("cuLibraryLoadData", kVersion),
        look_up<decltype(LibraryFunctions::unload)>("cuLibraryUnload", kVersion),
        look_up<decltype(LibraryFunctions::module)>("cuLibraryGetModule", kVersion),
        look_up<decltype(LibraryFunctions::kernel)>("cuLibraryGetKernel", kVersion),
        look_up<decltype(LibraryFunctions::global)>("cuLibraryGetGlobal", kVersion),
        look_up<decltype(LibraryFunctions::managed)>("cuLibraryGetManaged", kVersion),
        look_up<decltype(LibraryFunctions::kernel_count)>("cuLibraryGetKernelCount", kVersion),
        look_up<decltype(LibraryFunctions::enumerate)>("cuLibraryEnumerateKernels", kVersion),
        look_up<decltype(LibraryFunctions::kernel_name)>("cuKernelGetName", kVersion),
        look_up<decltype(LibraryFunctions::parameter_info)>("cuKernelGetParamInfo", kVersion),
        look_up<decltype(LibraryFunctions::function)>("cuKernelGetFunction", kVersion),
        look_up<decltype(LibraryFunctions::attribute)>("cuFuncGetAttribute", kVersion),
        look_up<decltype(LibraryFunctions::set_attribute)>("cuFuncSetAttribute", kVersion),
        look_up<decltype(LibraryFunctions::occupancy)>("cuOccupancyMaxPotentialBlockSize", kVersion),
        look_up<decltype(LibraryFunctions::launch)>("cuLaunchKernelEx", kVersion),
    };
    return found;
}

}  // namespace cukern::cuda
