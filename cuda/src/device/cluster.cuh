// Clusters of blocks, which reach each other's shared memory: from compute capability 9.0 on.
#pragma once

#include <cstdint>

namespace cukern::cuda {

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900

// For all threads of all blocks of the cluster, and what they have written to shared memory.
__device__ __forceinline__ void wait_for_cluster() {
    asm volatile("barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned;" ::: "memory");
}

// Where another block of the cluster has what this one has at `own`, in its shared memory.
template <typename T>
__device__ __forceinline__ const T *shared_memory_of(const T *own, int block) {
    std::uint64_t address;
    asm("mapa.u64 %0, %1, %2;" : "=l"(address) : "l"(own), "r"(block));
    return reinterpret_cast<const T *>(address);
}

#endif

}  // namespace cukern::cuda
