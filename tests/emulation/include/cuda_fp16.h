// __half for kernels that are compiled for the processor: arithmetic in float, rounded when it is stored.
#pragma once

class __half {
public:
    __half() = default;
    template <typename T>
    __half(T value) : value_(static_cast<_Float16>(static_cast<float>(value))) {}
    operator float() const { return static_cast<float>(value_); }

private:
    _Float16 value_;
};
