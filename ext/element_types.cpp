#include "python.h"

#include "element_types.h"

#include <cstring>

namespace cukern::py {

bool element_type_of(int numpy_type, ElementType *type) noexcept {
    static_assert(sizeof(long) == sizeof(long long), "int64 has two NumPy type numbers");
    if (numpy_type == NPY_LONGLONG) numpy_type = NPY_INT64;
    switch (numpy_type) {
#define CUKERN_ELEMENT_TYPE(id, ctype, suffix, kind, npy) \
    case npy: *type = ElementType::id; return true;
#include "cukern/element_types.def"
#undef CUKERN_ELEMENT_TYPE
        default: return false;
    }
}

int numpy_type_of(ElementType type) noexcept {
    static constexpr int kNumbers[] = {
#define CUKERN_ELEMENT_TYPE(id, ctype, suffix, kind, npy) npy,
#include "cukern/element_types.def"
#undef CUKERN_ELEMENT_TYPE
    };
    return kNumbers[static_cast<int>(type)];
}

Format element_type_of(const char *format, Py_ssize_t item_size, ElementType *type) noexcept {
    if (format == nullptr) format = "B";
    bool swapped = false;
    if (*format != '\0' && std::strchr("@=<>!", *format) != nullptr) swapped = *format == '>' || *format == '!';
    if (*format != '\0' && std::strchr("@=<>!", *format) != nullptr) ++format;
    if (format[0] == '\0' || format[1] != '\0') return Format::unknown;
    // The size comes from the buffer: ctypes writes '<l' for eight bytes, where the struct module means four.
    char kind = '\0';
    if (std::strchr("fd", *format) != nullptr) kind = 'f';
    if (std::strchr("ilqn", *format) != nullptr) kind = 'i';
    if (std::strchr("Bbc", *format) != nullptr) return Format::untyped;
    for (int i = 0; i < kNumElementTypes; ++i) {
        if (kElementTypes[i].kind != kind || kElementTypes[i].size != item_size) continue;
        *type = static_cast<ElementType>(i);
        return swapped ? Format::byte_swapped : Format::known;
    }
    return Format::unknown;
}

const char *supported_element_types() noexcept {
    static const char *const text =
#define CUKERN_ELEMENT_TYPE(id, ctype, suffix, kind, npy) ", " #id
#include "cukern/element_types.def"
#undef CUKERN_ELEMENT_TYPE
        ;
    return text + 2;
}

}  // namespace cukern::py
