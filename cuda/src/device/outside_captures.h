// A scope whose calls are for no captured stream, and must not end a capture.
#pragma once

#include <cuda_runtime_api.h>

namespace cukern::cuda {

// While any thread captures a stream in CUDA's mode "global" or this one in "thread local", what might order work
// by itself is refused and ends the capture. What is called in this scope is for no captured stream and is let be.
class OutsideCaptures {
public:
    OutsideCaptures() noexcept : changed_(cudaThreadExchangeStreamCaptureMode(&mode_) == cudaSuccess) {
        if (!changed_) cudaGetLastError();
    }
    OutsideCaptures(const OutsideCaptures &) = delete;
    OutsideCaptures &operator=(const OutsideCaptures &) = delete;
    ~OutsideCaptures() {
        if (changed_) cudaThreadExchangeStreamCaptureMode(&mode_);
    }

private:
    cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;
    const bool changed_;
};

}  // namespace cukern::cuda
