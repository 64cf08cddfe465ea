// The table of operations as C++: the enum and its rows, made from ops.def.
#pragma once

#include "cukern/element_type.h"

namespace cukern {

enum class Op : std::int16_t {
#define CUKERN_OP(id, kind, types, rule, doc) id,
#include "cukern/ops.def"
#undef CUKERN_OP
    // Not rows: the conversion and copy that staging and products need between any strides, and clip, which in
    // Python may have one bound.
    copy,
    clip,
};

enum class OpKind : std::int8_t { binary, scalar, unary, choice, axpy, reduction };

// The types that an operation computes in. real: all except complex; numeric: all except bool; inexact: floating
// and complex; bits: bool and integers.
enum class TypeSet : std::int8_t { any, real, numeric, inexact, floating, bits, integers, boolean };

// What an operation computes in, and returns if it is not the same, from its operands' promoted type.
enum class ResultRule : std::int8_t {
    promoted,    // that type
    arithmetic,  // that type; bool counts as int8
    rounded,     // that type; bool counts as float16
    component,   // that type, and returns that of its real part
    floating,    // that type; integers and bool count as float64
    sized,       // that type; integers and bool count as the smallest float that holds the operands' types, if any
    sign,        // as sized, and returns bool
    boolean,     // that type, and returns bool
    test,        // that type, integers as bool, and returns bool
    logical,     // bool
    summed,      // that type; bool and signed integers count as int64, unsigned ones as uint64
    variance,    // as floating, and returns that of its real part
    index        // that type, and returns int64
};

struct OpInfo {
    const char *name;
    OpKind kind;
    TypeSet types;
    ResultRule rule;
    const char *doc;
};

inline constexpr OpInfo kOps[] = {
#define CUKERN_OP(id, kind, types, rule, doc) {#id, OpKind::kind, TypeSet::types, ResultRule::rule, doc},
#include "cukern/ops.def"
#undef CUKERN_OP
    {"copy", OpKind::unary, TypeSet::any, ResultRule::promoted, "Copy."},
    {"clip", OpKind::choice, TypeSet::any, ResultRule::promoted, "Elements between two bounds."},
};
constexpr int kNumTableOps = static_cast<int>(Op::copy);

constexpr const OpInfo &info(Op op) { return kOps[static_cast<int>(op)]; }
constexpr int arity(OpKind kind) {
    return kind == OpKind::unary || kind == OpKind::reduction ? 1
           : kind == OpKind::choice || kind == OpKind::axpy   ? 3
                                                              : 2;
}
constexpr int arity(Op op) { return arity(info(op).kind); }
constexpr int kMaxInputs = 3;

constexpr const char *kKindNames[] = {"binary", "scalar", "unary", "choice", "axpy", "reduction"};
constexpr const char *name_of(OpKind kind) { return kKindNames[static_cast<int>(kind)]; }
constexpr const char *kTypeSetNames[] = {"any",      "real", "numeric",  "inexact",
                                         "floating", "bits", "integers", "boolean"};
constexpr const char *name_of(TypeSet types) { return kTypeSetNames[static_cast<int>(types)]; }
constexpr const char *kRuleNames[] = {"promoted", "arithmetic", "rounded", "component", "floating",
                                      "sized",    "sign",       "boolean", "test",      "logical",
                                      "summed",   "variance",   "index"};
constexpr const char *name_of(ResultRule rule) { return kRuleNames[static_cast<int>(rule)]; }
constexpr bool is_comparison(Op op) { return info(op).rule == ResultRule::boolean; }

// The type in which an operation computes, from its operands'; that of a single one is given twice.
constexpr ElementType compute_type(Op op, ElementType a, ElementType b) {
    const ElementType promoted = promote(a, b);
    const bool is_bool = promoted == ElementType::bool_;
    const bool exact = is_integer(promoted) || is_bool;
    switch (info(op).rule) {
        case ResultRule::promoted:
        case ResultRule::component:
        case ResultRule::boolean: return promoted;
        case ResultRule::arithmetic: return is_bool ? ElementType::int8 : promoted;
        case ResultRule::rounded: return is_bool ? ElementType::float16 : promoted;
        case ResultRule::floating:
        case ResultRule::variance: return exact ? ElementType::float64 : promoted;
        case ResultRule::sized:
        case ResultRule::sign:
            return exact ? type_of('f', detail::max(detail::float_size_for(a), detail::float_size_for(b)))
                         : promoted;
        case ResultRule::test: return exact ? ElementType::bool_ : promoted;
        case ResultRule::logical: return ElementType::bool_;
        case ResultRule::summed:
            if (kind_of(promoted) == 'u') return ElementType::uint64;
            return exact ? ElementType::int64 : promoted;
        case ResultRule::index: return promoted;
    }
    return promoted;
}

constexpr bool returns_bool(ResultRule rule) {
    return rule == ResultRule::boolean || rule == ResultRule::test || rule == ResultRule::logical ||
           rule == ResultRule::sign;
}

// The type that an operation returns, from the type that it computes in.
constexpr ElementType result_type(Op op, ElementType compute) {
    if (returns_bool(info(op).rule)) return ElementType::bool_;
    if (info(op).rule == ResultRule::index) return ElementType::int64;
    const bool is_real = info(op).rule == ResultRule::component || info(op).rule == ResultRule::variance;
    return is_real ? real_of(compute) : compute;
}

// Whether an operation computes in a type.
constexpr bool takes(Op op, ElementType compute) {
    const char kind = kind_of(compute);
    switch (info(op).types) {
        case TypeSet::any: return true;
        case TypeSet::real: return kind != 'c';
        case TypeSet::numeric: return kind != 'b';
        case TypeSet::inexact: return kind == 'f' || kind == 'c';
        case TypeSet::floating: return kind == 'f';
        case TypeSet::bits: return kind == 'b' || is_integer(compute);
        case TypeSet::integers: return is_integer(compute);
        case TypeSet::boolean: return kind == 'b';
    }
    return false;
}

// Whether it leaves elements of a type as they are: what it does is a copy then.
constexpr bool is_identity(Op op, ElementType compute) {
    const char kind = kind_of(compute);
    switch (op) {
        case Op::positive: return true;
        case Op::real:
        case Op::conj: return kind != 'c';
        case Op::floor:
        case Op::ceil:
        case Op::trunc:
        case Op::round: return kind == 'b' || is_integer(compute);
        case Op::abs: return kind == 'b' || kind == 'u';
        default: return false;
    }
}

// The type whose kernel is used: unsigned for signed integers where the bits are the same; for `where`, bits only.
constexpr ElementType kernel_type(Op op, ElementType compute) {
    if (op == Op::where) return kind_of(compute) == 'b' ? compute : bits_of(compute);
    if (kind_of(compute) != 'i') return compute;
    switch (op) {
        case Op::add:
        case Op::subtract:
        case Op::multiply:
        case Op::scale:
        case Op::axpy:
        case Op::square:
        case Op::negative:
        case Op::equal:
        case Op::not_equal:
        case Op::bitwise_and:
        case Op::bitwise_or:
        case Op::bitwise_xor:
        case Op::bitwise_invert: return bits_of(compute);
        default: return compute;
    }
}

constexpr bool is_reduction(Op op) { return info(op).kind == OpKind::reduction; }

// Whether a reduction of no elements gives something.
constexpr bool has_identity(Op op) {
    return op != Op::max && op != Op::min && op != Op::argmax && op != Op::argmin;
}

// Whether an elementwise operation has a kernel that computes in this type.
constexpr bool computes_in(Op op, ElementType type) {
    return !is_reduction(op) && takes(op, type) && compute_type(op, type, type) == type && !is_identity(op, type);
}

// Logic asks what is not zero. The type as which operands of one type are looked at, where only that counts; bool:
// by their truth, one by one.
constexpr bool is_logical(Op op) { return info(op).rule == ResultRule::logical && !is_reduction(op); }
constexpr ElementType logical_type(ElementType type) {
    switch (kind_of(type)) {
        case 'c': return ElementType::bool_;
        case 'f': return type == ElementType::bfloat16 ? ElementType::float16 : type;
        case 'b': return type;
        default: return bits_of(type);
    }
}

// The types that products have kernels for; libraries have more.
constexpr bool has_product(ElementType type) {
    return type == ElementType::float32 || type == ElementType::float64 || type == ElementType::int32 ||
           type == ElementType::int64 || kind_of(type) == 'c';
}

// What products of elements of a type are computed in: integers in one of 32 or 64 bits, whose lower bits are
// theirs, and bool by counting.
constexpr ElementType product_type(ElementType type) {
    if (is_floating(type) || kind_of(type) == 'c') return type;
    return size_of(type) == 8 ? ElementType::int64 : ElementType::int32;
}

}  // namespace cukern
