// The table of operations as C++: the enum and its rows, made from ops.def.
#pragma once

#include "cukern/element_type.h"

namespace cukern {

enum class Op : std::int16_t {
#define CUKERN_OP(id, kind, types, rule, doc) id,
#include "cukern/ops.def"
#undef CUKERN_OP
    copy,  // not a row: the conversion and copy that staging and products need between any strides
};

enum class OpKind : std::int8_t { binary, scalar, unary };
enum class TypeSet : std::int8_t { any, numeric };
enum class ResultRule : std::int8_t { promoted, floating, boolean };

struct OpInfo {
    const char *name;
    OpKind kind;
    TypeSet types;
    ResultRule rule;
    const char *doc;
};

constexpr OpInfo kOps[] = {
#define CUKERN_OP(id, kind, types, rule, doc) {#id, OpKind::kind, TypeSet::types, ResultRule::rule, doc},
#include "cukern/ops.def"
#undef CUKERN_OP
    {"copy", OpKind::unary, TypeSet::any, ResultRule::promoted, "Copy."},
};
constexpr int kNumTableOps = static_cast<int>(Op::copy);

constexpr const OpInfo &info(Op op) { return kOps[static_cast<int>(op)]; }
constexpr int arity(OpKind kind) { return kind == OpKind::unary ? 1 : 2; }
constexpr int arity(Op op) { return arity(info(op).kind); }
constexpr int kMaxInputs = 2;

constexpr const char *name_of(OpKind kind) {
    return kind == OpKind::binary ? "binary" : kind == OpKind::scalar ? "scalar" : "unary";
}
constexpr const char *name_of(TypeSet types) { return types == TypeSet::any ? "any" : "numeric"; }
constexpr const char *name_of(ResultRule rule) {
    return rule == ResultRule::promoted ? "promoted" : rule == ResultRule::floating ? "floating" : "boolean";
}
constexpr bool is_comparison(Op op) { return info(op).rule == ResultRule::boolean; }

// The type in which an operation computes, from its operands' promoted type.
constexpr ElementType compute_type(Op op, ElementType promoted) {
    const bool exact = is_integer(promoted) || promoted == ElementType::bool_;
    return info(op).rule == ResultRule::floating && exact ? ElementType::float64 : promoted;
}

// And the one that it returns.
constexpr ElementType result_type(Op op, ElementType compute) {
    return info(op).rule == ResultRule::boolean ? ElementType::bool_ : compute;
}

// Whether an operation takes operands of this promoted type.
constexpr bool takes(Op op, ElementType promoted) {
    return info(op).types == TypeSet::any || promoted != ElementType::bool_;
}

// Whether an operation has a kernel that computes in this type.
constexpr bool computes_in(Op op, ElementType type) { return takes(op, type) && compute_type(op, type) == type; }

// The types that products take.
constexpr bool has_product(ElementType type) {
    return type == ElementType::float32 || type == ElementType::float64 || type == ElementType::int32 ||
           type == ElementType::int64;
}

}  // namespace cukern
