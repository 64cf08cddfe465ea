// A kernel's parameters in messages.
#pragma once

#include <cstddef>

#include "cukern/user_kernels.h"

namespace cukern::py {

// "const float *", or what is known without a C++ name.
struct ParameterText {
    char text[96];
    explicit ParameterText(const KernelParameter &parameter) noexcept;
};

// "float32 or complex64".
void list_types(std::uint32_t elements, char *text, std::size_t size) noexcept;

}  // namespace cukern::py
