#include "user_kernels/mangled_name.h"

#include <cstring>

namespace cukern::mangled {
namespace {

bool is_digit(char c) noexcept { return c >= '0' && c <= '9'; }

// Counts how deep types lie in each other.
class Depth {
public:
    explicit Depth(int *depth) noexcept : depth_(depth) { ++*depth_; }
    ~Depth() { --*depth_; }
    Depth(const Depth &) = delete;
    Depth &operator=(const Depth &) = delete;

private:
    int *depth_;
};

}  // namespace

bool Reader::take(char c) noexcept {
    if (peek() != c || at_ == end_) return false;
    ++at_;
    return true;
}

NodeId Reader::make(Node::Kind kind, NodeId inner, std::string_view text) noexcept {
    if (num_nodes_ == kMostNodes) return kNone;
    Node &made = nodes_[num_nodes_];
    made = {};
    made.kind = kind;
    made.inner = inner;
    made.text = text;
    return static_cast<NodeId>(num_nodes_++);
}

// A copy for a list: a node that substitutions refer to may be in several.
NodeId Reader::link(NodeId id) noexcept {
    const NodeId copy = id == kNone ? kNone : make(Node::Kind::builtin);
    if (copy == kNone) return kNone;
    nodes_[copy] = nodes_[id];
    nodes_[copy].next = kNone;
    return copy;
}

NodeId Reader::remember(NodeId id) noexcept {
    if (id == kNone || num_substitutions_ == kMostSubstitutions) return kNone;
    substitutions_[num_substitutions_++] = id;
    return id;
}

bool Reader::number(int *value) noexcept {
    if (!is_digit(peek())) return false;
    *value = 0;
    while (is_digit(peek())) {
        if (*value > 100000) return false;
        *value = *value * 10 + (*at_++ - '0');
    }
    return true;
}

bool Reader::sequence(int *value) noexcept {
    *value = 0;
    if (take('_')) return true;
    int place = 0;
    for (; is_digit(peek()) || (peek() >= 'A' && peek() <= 'Z'); ++at_) {
        if (place > kMostSubstitutions) return false;
        place = place * 36 + (is_digit(*at_) ? *at_ - '0' : *at_ - 'A' + 10);
    }
    *value = place + 1;
    return take('_');
}

bool Reader::read(const char *mangled) noexcept {
    num_nodes_ = num_substitutions_ = depth_ = 0;
    kernel_ = arguments_ = parameters_ = kNone;
    if (std::strncmp(mangled, "_Z", 2) != 0) return false;
    at_ = mangled + 2;
    end_ = mangled + std::strlen(mangled);
    if (const void *suffix = std::strchr(mangled, '.'); suffix != nullptr)  // of a copy that the compiler has made
        end_ = static_cast<const char *>(suffix);
    bool is_template = false;
    if (!encoding_name(&is_template) || kernel_ == kNone) return false;
    if (is_template && type() == kNone) return false;  // what it returns
    if (at_ + 1 == end_ && take('v')) return true;
    NodeId *last = &parameters_;
    while (at_ < end_) {
        const NodeId parameter = link(type());
        if (parameter == kNone) return false;
        *last = parameter;
        last = &nodes_[parameter].next;
    }
    return parameters_ != kNone;
}

bool Reader::encoding_name(bool *is_template) noexcept {
    if (peek() == 'N') {
        const NodeId name = nested(false);
        if (name == kNone) return false;
        *is_template = nodes_[name].kind == Node::Kind::instance;
        kernel_ = *is_template ? nodes_[name].inner : name;
        arguments_ = *is_template ? nodes_[name].list : kNone;
        return true;
    }
    NodeId scope = kNone;
    if (peek() == 'S' && peek_second() == 't') {
        at_ += 2;
        scope = make(Node::Kind::name, kNone, "std");
    }
    kernel_ = component(scope);
    *is_template = peek() == 'I';
    if (!*is_template) return kernel_ != kNone;
    const NodeId instance = with_arguments(remember(kernel_));
    if (instance == kNone) return false;
    arguments_ = nodes_[instance].list;
    return true;
}

NodeId Reader::type() noexcept {
    const Depth depth(&depth_);
    if (depth_ > kDeepest) return kNone;
    const char c = peek();
    switch (c) {
        case 'r':
        case 'V':
        case 'K': {
            bool is_const = false;
            while (peek() == 'r' || peek() == 'V' || peek() == 'K') is_const = *at_++ == 'K' || is_const;
            const NodeId inner = type();
            if (inner == kNone) return kNone;
            return remember(is_const ? make(Node::Kind::constant, inner) : inner);
        }
        case 'P':
        case 'R':
        case 'O': {
            ++at_;
            const NodeId inner = type();
            return inner == kNone ? kNone : remember(make(Node::Kind::pointer, inner));
        }
        case 'A': {
            ++at_;
            int length = 0;
            if (peek() == 'T' ? template_parameter() == kNone : !number(&length) && peek() != '_') return kNone;
            if (!take('_')) return kNone;
            const NodeId inner = type();
            return inner == kNone ? kNone : remember(make(Node::Kind::array, inner));
        }
        case 'F': {
            ++at_;
            take('Y');
            NodeId types = kNone;
            return list_until_end(&types) ? remember(make(Node::Kind::function)) : kNone;
        }
        case 'N': return nested(true);
        case 'S':
            if (peek_second() != 't') {
                const NodeId found = substitution();
                return peek() == 'I' ? remember(with_arguments(found)) : found;
            }
            return class_name();
        case 'T': {
            if (peek_second() == 's' || peek_second() == 'u' || peek_second() == 'e') {  // struct, union, enum
                at_ += 2;
                return class_name();
            }
            const NodeId parameter = remember(template_parameter());
            return peek() == 'I' ? remember(with_arguments(parameter)) : parameter;
        }
        case 'U': {  // a vendor's qualifier
            ++at_;
            int length = 0;
            if (!number(&length) || length > end_ - at_) return kNone;
            at_ += length;
            const NodeId inner = type();
            return inner == kNone ? kNone : remember(inner);
        }
        case 'u': ++at_; return remember(component(kNone));
        case 'D':
            if (peek_second() != 'p') return builtin();
            at_ += 2;
            if (const NodeId inner = type(); inner != kNone) return remember(make(Node::Kind::expansion, inner));
            return kNone;
        default: return is_digit(c) ? class_name() : builtin();
    }
}

// One letter, or D and more.
NodeId Reader::builtin() noexcept {
    const char *const begin = at_;
    if (take('D')) {
        if (take('F')) {  // DF16_, DF16b
            int bits = 0;
            if (!number(&bits) || (!take('_') && !take('b') && !take('x'))) return kNone;
        } else if (std::strchr("defhiasunc", peek()) != nullptr && at_ < end_) {
            ++at_;
        } else {
            return kNone;
        }
    } else if (at_ < end_ && std::strchr("vwbcahstijlmxynofdegz", peek()) != nullptr) {
        ++at_;
    } else {
        return kNone;
    }
    return make(Node::Kind::builtin, kNone, {begin, static_cast<std::size_t>(at_ - begin)});
}

// A part of a name: its length and as many letters, maybe of internal linkage, maybe with tags.
NodeId Reader::component(NodeId scope) noexcept {
    take('L');
    NodeId made = kNone;
    if (peek() == 'U' && peek_second() == 't') {
        at_ += 2;
        int which = 0;
        number(&which);
        if (take('_')) made = make(Node::Kind::name, scope, "(unnamed)");
    } else {
        int length = 0;
        if (!number(&length) || length == 0 || length > end_ - at_) return kNone;
        made = make(Node::Kind::name, scope, {at_, static_cast<std::size_t>(length)});
        at_ += length;
    }
    while (take('B')) {
        int length = 0;
        if (!number(&length) || length > end_ - at_) return kNone;
        at_ += length;
    }
    return made;
}

NodeId Reader::class_name() noexcept {
    NodeId scope = kNone;
    if (peek() == 'S' && peek_second() == 't') {
        at_ += 2;
        scope = make(Node::Kind::name, kNone, "std");
    }
    const NodeId name = remember(component(scope));
    return name != kNone && peek() == 'I' ? remember(with_arguments(name)) : name;
}

NodeId Reader::nested(bool is_type) noexcept {
    if (!take('N')) return kNone;
    while (peek() == 'r' || peek() == 'V' || peek() == 'K' || peek() == 'R' || peek() == 'O') ++at_;
    NodeId scope = kNone;
    while (!take('E')) {
        bool is_new = true;
        if (peek() == 'S') {
            if (scope != kNone) return kNone;
            is_new = false;
            if (peek_second() == 't') {
                at_ += 2;
                scope = make(Node::Kind::name, kNone, "std");
            } else {
                scope = substitution();
            }
        } else if (peek() == 'T') {
            if (scope != kNone) return kNone;
            scope = template_parameter();
        } else if (peek() == 'I') {
            scope = with_arguments(scope);
        } else {
            scope = component(scope);
        }
        if (scope == kNone) return kNone;
        if (is_new && (is_type || peek() != 'E') && remember(scope) == kNone) return kNone;
    }
    return scope;
}

NodeId Reader::substitution() noexcept {
    if (!take('S')) return kNone;
    struct Standard {
        char code;
        const char *name;
    };
    constexpr Standard kStandard[] = {{'a', "allocator"}, {'b', "basic_string"}, {'s', "string"},
                                      {'i', "istream"},   {'o', "ostream"},      {'d', "iostream"}};
    for (const Standard &standard : kStandard)
        if (take(standard.code))
            return make(Node::Kind::name, make(Node::Kind::name, kNone, "std"), standard.name);
    int which = 0;
    if (!sequence(&which) || which >= num_substitutions_) return kNone;
    return substitutions_[which];
}

NodeId Reader::template_parameter() noexcept {
    if (!take('T')) return kNone;
    int index = 0;
    if (!take('_')) {
        if (!number(&index) || !take('_')) return kNone;
        ++index;
    }
    const NodeId made = make(Node::Kind::parameter);
    if (made != kNone) nodes_[made].index = index;
    return made;
}

NodeId Reader::with_arguments(NodeId name) noexcept {
    if (name == kNone || !take('I')) return kNone;
    NodeId arguments = kNone;
    if (!list_until_end(&arguments)) return kNone;
    const NodeId made = make(Node::Kind::instance, name);
    if (made != kNone) nodes_[made].list = arguments;
    return made;
}

bool Reader::list_until_end(NodeId *first) noexcept {
    NodeId *last = first;
    while (!take('E')) {
        const NodeId element = link(argument());
        if (element == kNone) return false;
        *last = element;
        last = &nodes_[element].next;
    }
    return true;
}

NodeId Reader::argument() noexcept {
    const Depth depth(&depth_);
    if (depth_ > kDeepest) return kNone;
    if (take('J')) {
        NodeId elements = kNone;
        if (!list_until_end(&elements)) return kNone;
        const NodeId made = make(Node::Kind::pack);
        if (made != kNone) nodes_[made].list = elements;
        return made;
    }
    if (take('X')) {  // an expression: of these the name of a parameter alone
        const NodeId value = template_parameter();
        return take('E') ? value : kNone;
    }
    if (!take('L')) return type();
    if (peek() == '_') return kNone;  // the name of an object
    if (type() == kNone) return kNone;
    const char *const begin = at_;
    while (at_ < end_ && peek() != 'E') ++at_;
    const std::string_view digits(begin, static_cast<std::size_t>(at_ - begin));
    return take('E') ? make(Node::Kind::value, kNone, digits) : kNone;
}

}  // namespace cukern::mangled
