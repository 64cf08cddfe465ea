// The grid of a launch: threads of a block, blocks, and how a thread finds its place by division.
#pragma once

#include <cstdint>

#include "device/block_size.h"
#include "plan/limits.h"

namespace cukern::cuda {

inline unsigned blocks_for(std::int64_t threads) noexcept {
    return static_cast<unsigned>((threads + kThreads - 1) / kThreads);
}

// Division of numbers below 2**31 by one that is known at the launch: the upper half of a product, and a shift.
struct Divider {
    std::uint32_t by;
    std::uint32_t factor;
    std::uint32_t shift;

    static Divider make(std::uint32_t by) noexcept {
        std::uint32_t shift = 0;
        while (shift < 31 && (std::uint32_t{1} << shift) < by) ++shift;
        const std::uint64_t power = std::uint64_t{1} << shift;
        const auto factor = static_cast<std::uint32_t>(((std::uint64_t{1} << 32) * (power - by)) / by + 1);
        return {by, factor, shift};
    }
    __device__ std::uint32_t divide(std::uint32_t n) const { return (__umulhi(n, factor) + n) >> shift; }
    __device__ std::uint32_t divide(std::uint32_t n, std::uint32_t *rest) const {
        const std::uint32_t quotient = divide(n);
        *rest = n - quotient * by;
        return quotient;
    }
};

// Some dimensions of a launch, from the slowest to the fastest: fewer than 2**31 places.
struct Dimensions {
    int ndim = 0;
    Divider shape[kMaxReduceDims];
    std::int64_t strides[kMaxReduceDims];

    void add(std::int64_t length, std::int64_t stride) noexcept {
        shape[ndim] = Divider::make(static_cast<std::uint32_t>(length));
        strides[ndim++] = stride;
    }
    // Where the element lies that comes at `index`, counted in C order.
    __device__ std::int64_t offset_at(std::uint32_t index) const {
        if (ndim <= 1) return ndim == 0 ? 0 : index * strides[0];
        std::int64_t offset = 0;
#pragma unroll 1
        for (int d = ndim - 1; d > 0; --d) {
            std::uint32_t at;
            index = shape[d].divide(index, &at);
            offset += at * strides[d];
        }
        return offset + index * strides[0];
    }
};

// Dimensions that lie in two arrays, such as an input and `out`.
struct PairedDimensions {
    struct alignas(16) Dimension {
        Divider shape;
        std::int64_t stride;
        std::int64_t place;  // the stride of the second array
    };
    int ndim = 0;
    Dimension dimensions[kMaxReduceDims];

    void add(std::int64_t length, std::int64_t stride, std::int64_t place) noexcept {
        dimensions[ndim++] = {Divider::make(static_cast<std::uint32_t>(length)), stride, place};
    }
    // Where the element lies that comes at `index`, counted in C order, and where in the second array.
    __device__ std::int64_t offset_at(std::uint32_t index, std::int64_t *place) const {
        std::int64_t offset = 0;
        *place = 0;
#pragma unroll 1
        for (int d = ndim - 1; d > 0; --d) {
            const Dimension own = dimensions[d];
            std::uint32_t at;
            index = own.shape.divide(index, &at);
            offset += at * own.stride;
            *place += at * own.place;
        }
        if (ndim == 0) return 0;
        *place += index * dimensions[0].place;
        return offset + index * dimensions[0].stride;
    }
    __device__ std::int64_t place_at(std::uint32_t index) const {
        std::int64_t place;
        offset_at(index, &place);
        return place;
    }
};

}  // namespace cukern::cuda
