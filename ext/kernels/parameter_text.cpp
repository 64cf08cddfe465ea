#include "kernels/parameter_text.h"

#include <cstdio>

namespace cukern::py {

ParameterText::ParameterText(const KernelParameter &parameter) noexcept {
    if (parameter.type.text[0] != '\0')
        std::snprintf(text, sizeof text, "%s", parameter.type.text);
    else
        std::snprintf(text, sizeof text, "%zu bytes", parameter.size);
}

void list_types(std::uint32_t elements, char *text, std::size_t size) noexcept {
    std::size_t used = 0;
    text[0] = '\0';
    for (int i = 0; i < kNumElementTypes && used < size; ++i) {
        if ((elements >> i & 1) == 0) continue;
        used += static_cast<std::size_t>(std::snprintf(text + used, size - used, "%s%s", used > 0 ? " or " : "",
                                                       name_of(static_cast<ElementType>(i))));
    }
}

}  // namespace cukern::py
