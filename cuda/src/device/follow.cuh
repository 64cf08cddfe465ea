// A kernel that joins the results of the one before it may be launched before that one ends (programmatic
// dependent launch, from compute capability 9.0 on; Grid::follows): its blocks already wait when the results are
// complete.
#pragma once

namespace cukern::cuda {

// In the first kernel: when all of its blocks have come here, or ended, the next one's are launched, if that has
// been launched as one that follows, by us or by another library.
__device__ inline void let_next_kernel_begin() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;");
#endif
}

// In the next one, before it reads or writes anything: waits for the first one's end and for what it has written.
// A kernel that was launched as others are doesn't wait.
__device__ inline void wait_for_kernel_before() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

}  // namespace cukern::cuda
