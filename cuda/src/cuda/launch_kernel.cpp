#include "cuda/launch_kernel.h"

namespace cukern::cuda {

LaunchFunction launch_function() noexcept {
    static const LaunchFunction function = [] {
        void *found = nullptr;
        cudaDriverEntryPointQueryResult result{};
        if (cudaGetDriverEntryPointByVersion("cuLaunchKernel", &found, 12000, cudaEnableDefault, &result) !=
            cudaSuccess)
            cudaGetLastError();
        return reinterpret_cast<LaunchFunction>(found);
    }();
    return function;
}

}  // namespace cukern::cuda
