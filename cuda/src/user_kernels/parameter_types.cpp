// What a kernel's mangled name tells of its parameters: which arrays and numbers each takes.
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <memory>
#include <new>

#include "cukern/user_kernels.h"
#include "user_kernels/mangled_name.h"

namespace cukern {
namespace {

using mangled::kNone;
using mangled::Node;
using mangled::NodeId;
using mangled::Reader;
using Kind = ParameterType::Kind;

struct Builtin {
    std::string_view code;
    const char *name;
    bool is_number;
    ElementType element;
};
constexpr Builtin kBuiltins[] = {
    {"v", "void", false, {}},
    {"b", "bool", true, ElementType::bool_},
    {"c", "char", true, ElementType::int8},
    {"a", "signed char", true, ElementType::int8},
    {"h", "unsigned char", true, ElementType::uint8},
    {"s", "short", true, ElementType::int16},
    {"t", "unsigned short", true, ElementType::uint16},
    {"i", "int", true, ElementType::int32},
    {"j", "unsigned int", true, ElementType::uint32},
    {"l", "long", true, ElementType::int64},
    {"m", "unsigned long", true, ElementType::uint64},
    {"x", "long long", true, ElementType::int64},
    {"y", "unsigned long long", true, ElementType::uint64},
    {"f", "float", true, ElementType::float32},
    {"d", "double", true, ElementType::float64},
    {"w", "wchar_t", true, ElementType::int32},
    {"Du", "char8_t", true, ElementType::uint8},
    {"Ds", "char16_t", true, ElementType::uint16},
    {"Di", "char32_t", true, ElementType::uint32},
    {"DF16_", "_Float16", true, ElementType::float16},
    {"DF16b", "__bf16", true, ElementType::bfloat16},
    {"n", "__int128", false, {}},
    {"o", "unsigned __int128", false, {}},
};

// CUDA's own classes of numbers, and its vectors, which stand for their elements where they are pointed to.
struct NamedType {
    std::string_view name;
    ElementType element;
    bool is_number;  // also by value
};
constexpr NamedType kNamed[] = {
    {"__half", ElementType::float16, true},
    {"__nv_bfloat16", ElementType::bfloat16, true},
    {"__half2", ElementType::float16, false},
    {"__nv_bfloat162", ElementType::bfloat16, false},
};
constexpr NamedType kVectors[] = {
    {"char", ElementType::int8, false},      {"uchar", ElementType::uint8, false},
    {"short", ElementType::int16, false},    {"ushort", ElementType::uint16, false},
    {"int", ElementType::int32, false},      {"uint", ElementType::uint32, false},
    {"long", ElementType::int64, false},     {"ulong", ElementType::uint64, false},
    {"longlong", ElementType::int64, false}, {"ulonglong", ElementType::uint64, false},
    {"float", ElementType::float32, false},  {"double", ElementType::float64, false},
};

const Builtin *find_builtin(std::string_view code) noexcept {
    for (const Builtin &builtin : kBuiltins)
        if (builtin.code == code) return &builtin;
    return nullptr;
}

// "float4" as "float"; double4_16a as "double".
const NamedType *find_vector(std::string_view name) noexcept {
    const std::size_t digit = name.find_first_of("1234");
    if (digit == std::string_view::npos || digit == 0) return nullptr;
    const std::string_view rest = name.substr(digit + 1);
    if (!rest.empty() && rest != "_16a" && rest != "_32a") return nullptr;
    for (const NamedType &vector : kVectors)
        if (vector.name == name.substr(0, digit)) return &vector;
    return nullptr;
}

class Text {
public:
    Text(char *text, std::size_t size) noexcept : text_(text), size_(size) { text_[0] = '\0'; }
    bool is_full() const noexcept { return used_ + 1 >= size_; }
    void add(std::string_view more) noexcept {
        const std::size_t fits = std::min(more.size(), size_ - 1 - used_);
        std::memcpy(text_ + used_, more.data(), fits);
        used_ += fits;
        text_[used_] = '\0';
        if (fits < more.size() && size_ > 4) std::memcpy(text_ + size_ - 4, "...", 4);
    }

private:
    char *text_;
    std::size_t size_;
    std::size_t used_ = 0;
};

// A kernel's types with its template arguments in place. `element`: which of a pack's elements stands for it.
class Types {
public:
    explicit Types(const Reader &name) noexcept : name_(name) {}

    // The type itself: behind template parameters.
    NodeId resolve(NodeId id, int element) const noexcept {
        for (int steps = 0; id != kNone && steps < kMostSteps; ++steps) {
            const Node &node = name_.node(id);
            if (node.kind == Node::Kind::parameter)
                id = nth(name_.arguments(), node.index);
            else if (node.kind == Node::Kind::pack)
                id = element < 0 ? kNone : nth(node.list, element);
            else
                return id;
        }
        return kNone;
    }

    // The same without const. Names may be made such that this has no end.
    NodeId bare(NodeId id, int element, bool *is_const = nullptr) const noexcept {
        id = resolve(id, element);
        for (int steps = 0; id != kNone && name_.node(id).kind == Node::Kind::constant; ++steps) {
            if (steps == kMostSteps) return kNone;
            if (is_const != nullptr) *is_const = true;
            id = resolve(name_.node(id).inner, element);
        }
        return id;
    }

    NodeId nth(NodeId id, int n) const noexcept {
        while (id != kNone && n-- > 0) id = name_.node(id).next;
        return id;
    }

    // How many elements the first pack in a type has; -1: there is none.
    int pack_length(NodeId id) const noexcept {
        for (int steps = 0; id != kNone && steps < kMostSteps; ++steps) {
            const Node &node = name_.node(id);
            if (node.kind == Node::Kind::pack) {
                int length = 0;
                for (NodeId i = node.list; i != kNone; i = name_.node(i).next) ++length;
                return length;
            }
            id = node.kind == Node::Kind::parameter ? nth(name_.arguments(), node.index) : node.inner;
        }
        return -1;
    }

    // Whether a name is that of a member of a template parameter, or of an instance for one, as typename
    // Traits<T>::type, or an instance of a template that is a parameter, which may be an alias: any type.
    bool is_dependent(NodeId id) const noexcept {
        if (name_.node(id).kind == Node::Kind::instance) id = name_.node(id).inner;
        if (name_.node(id).kind == Node::Kind::parameter) return true;
        if (name_.node(id).kind != Node::Kind::name) return false;
        for (id = name_.node(id).inner; id != kNone; id = name_.node(id).inner) {
            const Node &scope = name_.node(id);
            int steps = 0;
            if (scope.kind == Node::Kind::parameter ||
                (scope.kind == Node::Kind::instance && has_parameter(scope, &steps)))
                return true;
        }
        return false;
    }

    void write(NodeId id, int element, Text *text, int depth = 0) const noexcept {
        if (text->is_full()) return;  // types that are used again and again make a small name a large type
        id = resolve(id, element);
        if (id == kNone || depth > kMostSteps) return text->add("?");
        const Node &node = name_.node(id);
        switch (node.kind) {
            case Node::Kind::builtin:
                if (const Builtin *builtin = find_builtin(node.text); builtin != nullptr)
                    return text->add(builtin->name);
                return text->add(node.text);
            case Node::Kind::name:
                if (node.inner != kNone) {
                    write(node.inner, element, text, depth + 1);
                    text->add("::");
                }
                return text->add(node.text);
            case Node::Kind::instance:
                write(node.inner, element, text, depth + 1);
                text->add("<");
                for (NodeId i = node.list; i != kNone; i = name_.node(i).next) {
                    if (i != node.list) text->add(", ");
                    write(i, element, text, depth + 1);
                }
                return text->add(">");
            case Node::Kind::pointer: {
                write(node.inner, element, text, depth + 1);
                const NodeId to = resolve(node.inner, element);
                return text->add(to != kNone && name_.node(to).kind == Node::Kind::pointer ? "*" : " *");
            }
            case Node::Kind::constant: {
                const NodeId of = resolve(node.inner, element);
                if (of != kNone && name_.node(of).kind == Node::Kind::constant)  // by a template argument
                    return write(of, element, text, depth + 1);
                const bool is_pointer = of != kNone && name_.node(of).kind == Node::Kind::pointer;
                if (!is_pointer) text->add("const ");
                write(of, element, text, depth + 1);
                return text->add(is_pointer ? "const" : "");
            }
            case Node::Kind::array: write(node.inner, element, text, depth + 1); return text->add("[]");
            case Node::Kind::function: return text->add("function");
            case Node::Kind::value: return text->add(node.text);
            case Node::Kind::expansion:
            case Node::Kind::parameter:
            case Node::Kind::pack: return text->add("?");
        }
    }

    // The classes "complex" of one type of std, cuda::std and thrust, and at global scope.
    bool is_complex(const Node &node, int element, ElementType *type) const noexcept {
        if (node.kind != Node::Kind::instance || name_.node(node.inner).text != "complex") return false;
        std::string_view outermost;
        for (NodeId id = name_.node(node.inner).inner; id != kNone; id = name_.node(id).inner)
            outermost = name_.node(id).text;
        if (!outermost.empty() && outermost != "std" && outermost != "cuda" && outermost != "thrust") return false;
        const NodeId part = bare(node.list, element);
        if (part == kNone || name_.node(part).kind != Node::Kind::builtin) return false;
        const std::string_view code = name_.node(part).text;
        *type = code == "f" ? ElementType::complex64 : ElementType::complex128;
        return code == "f" || code == "d";
    }

    // Which arrays a pointer to the type takes.
    std::uint32_t elements(NodeId id, int element) const noexcept {
        const Node &node = name_.node(id);
        if (node.kind == Node::Kind::pointer)  // addresses
            return bit_of(ElementType::int64) | bit_of(ElementType::uint64);
        if (node.kind == Node::Kind::builtin) {
            const Builtin *builtin = find_builtin(node.text);
            if (builtin == nullptr || !builtin->is_number) return kAnyElements;
            std::uint32_t bits = bit_of(builtin->element);
            if (node.text == "c") bits |= bit_of(ElementType::uint8);
            return bits;
        }
        ElementType type{};
        if (is_complex(node, element, &type)) return bit_of(type);
        if (node.kind != Node::Kind::name || node.inner != kNone) return kAnyElements;
        for (const NamedType &named : kNamed)
            if (named.name == node.text) return bit_of(named.element);
        const NamedType *vector = find_vector(node.text);
        if (vector == nullptr) return kAnyElements;
        std::uint32_t bits = bit_of(vector->element);
        if (node.text == "float2") bits |= bit_of(ElementType::complex64);
        if (node.text == "double2") bits |= bit_of(ElementType::complex128);
        return bits;
    }

    void describe(NodeId id, int element, ParameterType *type) const noexcept {
        *type = {};
        Text text(type->text, sizeof type->text);
        write(id, element, &text);
        id = bare(id, element);
        if (id == kNone || is_dependent(id)) return;
        const Node &node = name_.node(id);
        if (node.kind == Node::Kind::pointer) {
            type->kind = Kind::pointer;
            const NodeId to = pointee(node.inner, element, &type->is_const);
            type->elements = to == kNone || is_dependent(to) ? kAnyElements : elements(to, element);
        } else if (node.kind == Node::Kind::builtin) {
            const Builtin *builtin = find_builtin(node.text);
            type->kind = builtin != nullptr && builtin->is_number ? Kind::number : Kind::structure;
            if (builtin != nullptr) type->element = builtin->element;
        } else if (node.kind == Node::Kind::name || node.kind == Node::Kind::instance) {
            type->is_class = true;
            type->kind = stands_for_number(node, element, &type->element) ? Kind::number : Kind::structure;
        }
    }

private:
    // What a pointer points to, behind const and arrays.
    NodeId pointee(NodeId id, int element, bool *is_const) const noexcept {
        id = bare(id, element, is_const);
        for (int steps = 0; id != kNone && name_.node(id).kind == Node::Kind::array; ++steps) {
            if (steps == kMostSteps) return kNone;
            id = bare(name_.node(id).inner, element, is_const);
        }
        if (id != kNone && name_.node(id).kind == Node::Kind::function) *is_const = true;
        return id;
    }

    bool stands_for_number(const Node &node, int element, ElementType *type) const noexcept {
        if (is_complex(node, element, type)) return true;
        if (node.kind != Node::Kind::name || node.inner != kNone) return false;
        for (const NamedType &named : kNamed)
            if (named.is_number && named.name == node.text) {
                *type = named.element;
                return true;
            }
        *type = node.text == "float2" ? ElementType::complex64 : ElementType::complex128;
        return node.text == "float2" || node.text == "double2";
    }

    // Also where there are too many types to look at: nothing is known then.
    bool has_parameter(const Node &node, int *steps) const noexcept {
        constexpr int kMost = 1000;
        if (node.kind == Node::Kind::parameter || ++*steps > kMost) return true;
        if (node.inner != kNone && has_parameter(name_.node(node.inner), steps)) return true;
        for (NodeId i = node.list; i != kNone; i = name_.node(i).next)
            if (has_parameter(name_.node(i), steps)) return true;
        return false;
    }

    static constexpr int kMostSteps = 64;
    const Reader &name_;
};

}  // namespace

bool parameter_types(const char *mangled, ParameterType *types, int most, int *count) noexcept {
    *count = 0;
    Reader name;
    if (!name.read(mangled)) return false;
    const Types all(name);
    const auto add = [&](NodeId id, int element) {
        if (*count < most) all.describe(id, element, &types[*count]);
        ++*count;
    };
    for (NodeId i = name.parameters(); i != kNone; i = name.node(i).next) {
        const Node &node = name.node(i);
        if (node.kind != Node::Kind::expansion) {
            add(i, -1);
            continue;
        }
        const int length = all.pack_length(node.inner);
        if (length < 0) return false;
        for (int element = 0; element < length; ++element) add(node.inner, element);
    }
    return true;
}

bool describe_parameters(const char *name, KernelParameter *parameters, int count) noexcept {
    const std::unique_ptr<ParameterType[]> types(new (std::nothrow)
                                                     ParameterType[static_cast<std::size_t>(count) + 1]);
    if (types == nullptr) return false;
    int named = 0;
    const bool are_known = parameter_types(name, types.get(), count, &named) && named == count;
    for (int i = 0; i < count; ++i) {
        const ParameterType &type = types[static_cast<std::size_t>(i)];
        // A class may be called as one of CUDA's, and a kernel that is extern "C" as if its name were mangled.
        const bool has_size = type.kind == Kind::pointer ? parameters[i].size == sizeof(void *)
                              : type.kind == Kind::number
                                  ? parameters[i].size == static_cast<std::size_t>(size_of(type.element))
                                  : true;
        parameters[i].type = are_known && has_size ? type : ParameterType();
    }
    return true;
}

bool plain_name(const char *mangled, char *text, std::size_t size) noexcept {
    Reader name;
    if (!name.read(mangled)) return false;
    Text out(text, size);
    Types(name).write(name.kernel(), -1, &out);
    return true;
}

}  // namespace cukern
