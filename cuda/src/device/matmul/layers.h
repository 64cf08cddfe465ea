// Batches of products as layers of a grid.
#pragma once

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdint>

#include "plan/launch.h"

namespace cukern::cuda {

// What kernels of products know of their matrices.
template <typename T>
struct MatrixParams {
    const T *a, *b;
    T *c;
    std::int64_t batch_a, batch_b, batch_c;
    std::int64_t ldc, m, n, k;
};

// Calls start(layers) with p.a, p.b and p.c of the first of so many products, until all are launched.
template <typename T, typename Params, typename Start>
cudaError_t launch_in_layers(const MatmulLaunch &launch, Params &p, const Start &start) noexcept {
    constexpr std::int64_t kMostLayers = 65535;  // that a grid counts
    p.batch_a = launch.batch_a;
    p.batch_b = launch.batch_b;
    p.batch_c = launch.batch_c;
    p.ldc = launch.ldc;
    p.m = launch.m;
    p.n = launch.n;
    p.k = launch.k;
    for (std::int64_t first = 0; first < launch.batch; first += kMostLayers) {
        p.a = static_cast<const T *>(launch.a) + first * p.batch_a;
        p.b = static_cast<const T *>(launch.b) + first * p.batch_b;
        p.c = static_cast<T *>(launch.c) + first * p.batch_c;
        start(static_cast<unsigned>(std::min(kMostLayers, launch.batch - first)));
    }
    return cudaGetLastError();
}

}  // namespace cukern::cuda
