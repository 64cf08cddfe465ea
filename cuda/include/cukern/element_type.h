// Element types: the enum made from element_types.def, and the rules of promotion and casting.
#pragma once

#include <cstdint>

#include "cukern/scalar_types.h"

namespace cukern {

enum class ElementType : std::int8_t {
#define CUKERN_ELEMENT_TYPE(id, ctype, suffix, kind, npy, format, dlpack) id,
#include "cukern/element_types.def"
#undef CUKERN_ELEMENT_TYPE
};

struct ElementTypeInfo {
    const char *name;    // NumPy's
    const char *format;  // of the buffer protocol; empty where it has none
    std::int8_t size;
    std::int8_t alignment;
    char kind;  // NumPy's: 'b' bool, 'i' and 'u' integers, 'f' floating, 'c' complex
    std::uint8_t dlpack_code;
};

namespace detail {
// The row of bool is called bool_, since `bool` is a keyword; its name is "bool".
constexpr bool is_bool_row(const char *id) { return id[0] == 'b' && id[1] == 'o'; }
}  // namespace detail

inline constexpr ElementTypeInfo kElementTypes[] = {
#define CUKERN_ELEMENT_TYPE(id, ctype, suffix, kind, npy, format, dlpack) \
    {detail::is_bool_row(#id) ? "bool" : #id, format, sizeof(ctype), alignof(ctype), kind, dlpack},
#include "cukern/element_types.def"
#undef CUKERN_ELEMENT_TYPE
};
constexpr int kNumElementTypes = static_cast<int>(sizeof(kElementTypes) / sizeof(kElementTypes[0]));

constexpr const ElementTypeInfo &info(ElementType type) { return kElementTypes[static_cast<int>(type)]; }
constexpr int size_of(ElementType type) { return info(type).size; }
constexpr int alignment_of(ElementType type) { return info(type).alignment; }
constexpr char kind_of(ElementType type) { return info(type).kind; }
constexpr const char *name_of(ElementType type) { return info(type).name; }
constexpr bool is_floating(ElementType type) { return kind_of(type) == 'f'; }
constexpr bool is_integer(ElementType type) { return kind_of(type) == 'i' || kind_of(type) == 'u'; }

// An element type's value by its C++ type, and the other way round.
template <typename T>
struct ElementTypeOf;
template <ElementType type>
struct CTypeOfElement;
#define CUKERN_ELEMENT_TYPE(id, ctype, suffix, kind, npy, format, dlpack) \
    template <>                                                           \
    struct ElementTypeOf<ctype> {                                         \
        static constexpr ElementType value = ElementType::id;             \
    };                                                                    \
    template <>                                                           \
    struct CTypeOfElement<ElementType::id> {                              \
        using type = ctype;                                               \
    };
#include "cukern/element_types.def"
#undef CUKERN_ELEMENT_TYPE

template <ElementType type>
using CTypeOf = typename CTypeOfElement<type>::type;

// The type of a kind and size; float16 rather than bfloat16.
constexpr ElementType type_of(char kind, int size) {
    switch (kind) {
        case 'f':
            return size == 2 ? ElementType::float16 : size == 4 ? ElementType::float32 : ElementType::float64;
        case 'c': return size == 8 ? ElementType::complex64 : ElementType::complex128;
        case 'i':
            return size == 1   ? ElementType::int8
                   : size == 2 ? ElementType::int16
                   : size == 4 ? ElementType::int32
                               : ElementType::int64;
        case 'u':
            return size == 1   ? ElementType::uint8
                   : size == 2 ? ElementType::uint16
                   : size == 4 ? ElementType::uint32
                               : ElementType::uint64;
        default: return ElementType::bool_;
    }
}

// The type of a complex type's parts; any other type itself.
constexpr ElementType real_of(ElementType type) {
    return kind_of(type) == 'c' ? type_of('f', size_of(type) / 2) : type;
}

// The type that stands for `type` in copies: unsigned of its size, or the complex type itself.
constexpr ElementType bits_of(ElementType type) {
    return kind_of(type) == 'c' ? type : type_of('u', size_of(type));
}

namespace detail {
// The smallest of float16, float32 and float64 that NumPy promotes a type of another kind with.
constexpr int float_size_for(ElementType type) {
    if (type == ElementType::bfloat16) return 4;  // beside float16; see promote
    switch (kind_of(type)) {
        case 'b': return 2;
        case 'i':
        case 'u': return size_of(type) == 1 ? 2 : size_of(type) == 2 ? 4 : 8;
        case 'c': return size_of(type) / 2;
        default: return size_of(type);
    }
}
constexpr int max(int a, int b) { return a > b ? a : b; }
}  // namespace detail

// NumPy 2's promotion of two array types. bfloat16: with float16 float32, with a wider float that one, with
// integers and bool bfloat16.
constexpr ElementType promote(ElementType a, ElementType b) {
    using detail::float_size_for;
    if (a == b) return a;
    const char ka = kind_of(a);
    const char kb = kind_of(b);
    if (ka == 'b') return b;
    if (kb == 'b') return a;
    if (ka == 'c' || kb == 'c')
        return type_of('c', 2 * detail::max(4, detail::max(float_size_for(a), float_size_for(b))));
    if (a == ElementType::bfloat16 && is_integer(b)) return a;
    if (b == ElementType::bfloat16 && is_integer(a)) return b;
    if (ka == 'f' || kb == 'f') return type_of('f', detail::max(float_size_for(a), float_size_for(b)));
    if (ka == kb) return size_of(a) > size_of(b) ? a : b;
    const int i = ka == 'i' ? size_of(a) : size_of(b);  // one signed, one unsigned
    const int u = ka == 'u' ? size_of(a) : size_of(b);
    if (i > u) return type_of('i', i);
    return u == 8 ? ElementType::float64 : type_of('i', 2 * u);
}

// That of several types, in any order: floating and complex types first, as NumPy does. Each integer type is then
// promoted with them, which may need less than what the integers make of each other.
constexpr ElementType promote_all(const ElementType *types, int count) {
    ElementType all = ElementType::bool_;
    for (int pass = 0; pass < 2; ++pass)
        for (int i = 0; i < count; ++i) {
            const bool inexact = kind_of(types[i]) == 'f' || kind_of(types[i]) == 'c';
            if (inexact == (pass == 0)) all = promote(all, types[i]);
        }
    return all;
}

// NumPy's "same_kind": no cast that loses the imaginary part, the fraction, or the sign of a whole kind.
constexpr bool can_cast_same_kind(ElementType from, ElementType to) {
    constexpr auto rank = [](char kind) {
        return kind == 'b' ? 0 : kind == 'u' ? 1 : kind == 'i' ? 2 : kind == 'f' ? 3 : 4;
    };
    return rank(kind_of(from)) <= rank(kind_of(to));
}

}  // namespace cukern
