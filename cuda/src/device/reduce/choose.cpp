// Which kernels a reduction takes.
#include "device/kernels.h"
#include "formulas/reducers.cuh"

namespace cukern::cuda {

bool reduces_as_stored(const ReduceLaunch &launch) noexcept {
    return reduces_stored(launch.op, launch.type) &&
           launch.compute == compute_type(launch.op, launch.type, launch.type) &&
           launch.reduced < (std::int64_t{1} << 31) && (are_rows(launch) || are_columns(launch));
}

}  // namespace cukern::cuda
