// __nv_bfloat16 for kernels that are compiled for the processor: arithmetic in float, rounded when it is stored.
#pragma once

#include "../emulation.h"

class __nv_bfloat16 {
public:
    __nv_bfloat16() = default;
    template <typename T>
    __nv_bfloat16(T value) : bits_(__nv_bfloat162::narrow(static_cast<float>(value))) {}
    operator float() const { return __nv_bfloat162::widen(bits_); }

private:
    std::uint16_t bits_;
};
