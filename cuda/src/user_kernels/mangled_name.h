// Names of the Itanium C++ ABI, as far as kernels have them: a name is read into a tree of types.
#pragma once

#include <cstdint>
#include <string_view>

namespace cukern::mangled {

using NodeId = std::int16_t;
constexpr NodeId kNone = -1;

struct Node {
    enum class Kind : std::int8_t {
        builtin,    // `text` is its code
        name,       // `text`, in the scope `inner`
        instance,   // of the template `inner`, with the arguments `list`
        pointer,    // to `inner`; references, too
        constant,   // `inner`, which is only read
        array,      // of `inner`
        function,   // of any type
        parameter,  // of the template: its argument `index`
        pack,       // of the template arguments `list`
        expansion,  // of `inner` for each element of a pack
        value,      // a template argument that is no type: `text`
    };
    Kind kind = Kind::builtin;
    NodeId inner = kNone;
    NodeId list = kNone;  // the first of a list
    NodeId next = kNone;  // in a list
    int index = 0;
    std::string_view text;
};

// Reads one name; nothing is allocated.
class Reader {
public:
    // False where there is something that is not understood.
    bool read(const char *mangled) noexcept;

    const Node &node(NodeId id) const noexcept { return nodes_[id]; }
    NodeId kernel() const noexcept { return kernel_; }          // its name, without template arguments
    NodeId arguments() const noexcept { return arguments_; }    // of the kernel's template, a list
    NodeId parameters() const noexcept { return parameters_; }  // a list

private:
    static constexpr int kMostNodes = 512;
    static constexpr int kMostSubstitutions = 256;
    static constexpr int kDeepest = 64;

    char peek() const noexcept { return at_ < end_ ? *at_ : '\0'; }
    char peek_second() const noexcept { return at_ + 1 < end_ ? at_[1] : '\0'; }
    bool take(char c) noexcept;
    NodeId make(Node::Kind kind, NodeId inner = kNone, std::string_view text = {}) noexcept;
    NodeId link(NodeId id) noexcept;
    NodeId remember(NodeId id) noexcept;
    bool number(int *value) noexcept;
    bool sequence(int *value) noexcept;  // in base 36, as of substitutions

    bool encoding_name(bool *is_template) noexcept;
    NodeId type() noexcept;
    NodeId builtin() noexcept;
    NodeId class_name() noexcept;
    NodeId nested(bool is_type) noexcept;
    NodeId component(NodeId scope) noexcept;
    NodeId substitution() noexcept;
    NodeId template_parameter() noexcept;
    NodeId with_arguments(NodeId name) noexcept;
    NodeId argument() noexcept;
    bool list_until_end(NodeId *first) noexcept;

    const char *at_ = nullptr;
    const char *end_ = nullptr;
    Node nodes_[kMostNodes];
    int num_nodes_ = 0;
    NodeId substitutions_[kMostSubstitutions];
    int num_substitutions_ = 0;
    int depth_ = 0;
    NodeId kernel_ = kNone;
    NodeId arguments_ = kNone;
    NodeId parameters_ = kNone;
};

}  // namespace cukern::mangled
