// The element types that results depend on: those of arrays, and what Python's numbers beside them take (NEP 50).
#include "base/python.h"

#include "call/operand.h"

namespace cukern::py {

ElementType promote_weak(ElementType strong, Weak weak) noexcept {
    const char kind = kind_of(strong);
    switch (weak) {
        case Weak::integer: return kind == 'b' ? ElementType::int64 : strong;
        case Weak::real: return kind == 'f' || kind == 'c' ? strong : ElementType::float64;
        case Weak::complex:
            return kind == 'c'                                     ? strong
                   : kind == 'f' && strong != ElementType::float64 ? ElementType::complex64
                                                                   : ElementType::complex128;
        default: return strong;
    }
}

ElementType weak_type(Weak weak) noexcept { return promote_weak(ElementType::bool_, weak); }

Types types_of(const Operand &a, const Operand &b) noexcept {
    if (a.weak() == Weak::none && b.weak() == Weak::none) return {a.type(), b.type()};
    if (a.weak() == Weak::none) return {a.type(), promote_weak(a.type(), b.weak())};
    if (b.weak() == Weak::none) return {promote_weak(b.type(), a.weak()), b.type()};
    const ElementType both = promote_weak(promote_weak(ElementType::bool_, a.weak()), b.weak());
    return {both, both};
}

}  // namespace cukern::py
