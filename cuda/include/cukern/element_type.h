// Element types: the enum made from element_types.def, and the rules of promotion and casting.
#pragma once

#include <cstdint>

namespace cukern {

enum class ElementType : std::int8_t {
#define CUKERN_ELEMENT_TYPE(id, ctype, suffix, kind, npy) id,
#include "cukern/element_types.def"
#undef CUKERN_ELEMENT_TYPE
};

struct ElementTypeInfo {
    const char *name;
    int size;
    char kind;  // NumPy's: 'f' floating, 'i' signed integer
};

constexpr ElementTypeInfo kElementTypes[] = {
#define CUKERN_ELEMENT_TYPE(id, ctype, suffix, kind, npy) {#id, sizeof(ctype), kind},
#include "cukern/element_types.def"
#undef CUKERN_ELEMENT_TYPE
};
constexpr int kNumElementTypes = static_cast<int>(sizeof(kElementTypes) / sizeof(kElementTypes[0]));

constexpr const ElementTypeInfo &info(ElementType type) { return kElementTypes[static_cast<int>(type)]; }
constexpr int size_of(ElementType type) { return info(type).size; }
constexpr const char *name_of(ElementType type) { return info(type).name; }
constexpr bool is_floating(ElementType type) { return info(type).kind == 'f'; }

template <typename T>
struct ElementTypeOf;
#define CUKERN_ELEMENT_TYPE(id, ctype, suffix, kind, npy)     \
    template <>                                               \
    struct ElementTypeOf<ctype> {                             \
        static constexpr ElementType value = ElementType::id; \
    };
#include "cukern/element_types.def"
#undef CUKERN_ELEMENT_TYPE

// NumPy 2's promotion of two array types.
constexpr ElementType promote(ElementType a, ElementType b) {
    if (is_floating(a) == is_floating(b)) return size_of(a) >= size_of(b) ? a : b;
    return ElementType::float64;  // a 32- or 64-bit integer with any float
}

// NumPy's "same_kind": any cast but from a floating type to an integer.
constexpr bool can_cast_same_kind(ElementType from, ElementType to) {
    return is_floating(to) || !is_floating(from);
}

}  // namespace cukern
