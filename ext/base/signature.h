// A function's parameters as its docstring writes them, "(shape, dtype=None, *, memory=None)": the one text that
// help() shows and calls are parsed by.
#pragma once

#include "base/python.h"

namespace cukern::py {

class Signature {
public:
    static constexpr int kMost = 11;

    // Read when the extension is compiled. "/" and "*" mean what they do in Python; a parameter with a default is
    // optional, and those without one come first. What this cannot read does not compile.
    constexpr explicit Signature(const char *text) noexcept {
        const char *at = text + 1;
        bool positional = true;
        while (*at != ')') {
            if (*at == ' ' || *at == ',') {
                ++at;
            } else if (*at == '/') {
                positional_only_ = count_;
                ++at;
            } else if (*at == '*') {
                positional = false;
                ++at;
            } else {
                int length = 0;
                for (; *at != ',' && *at != '=' && *at != ')'; ++at) names_[count_][length++] = *at;
                if (length == kLongest || (*at != '=' && required_ != count_)) refuse_text();
                if (*at != '=') required_ = count_ + 1;
                while (*at != ',' && *at != ')') ++at;
                ++count_;
                if (positional) positional_ = count_;
            }
        }
    }

    // What a call by METH_FASTCALL passed, borrowed, by the parameters' order; null: not passed. TypeError where
    // it does not fit. With `self`, of a method, the first parameter is that.
    bool parse(const char *function, PyObject *self, PyObject *const *values, Py_ssize_t count, PyObject *names,
               PyObject **arguments) const noexcept;

    const char *name(int i) const noexcept { return names_[i]; }

private:
    static void refuse_text() noexcept {}  // no constant expression: the compiler stops at a call of it
    bool refuse_count(const char *function, Py_ssize_t given, int most) const noexcept;
    bool set_named(const char *function, PyObject *name, PyObject *value, PyObject **arguments) const noexcept;

    static constexpr int kLongest = 16;  // name, with its null
    char names_[kMost][kLongest] = {};
    int count_ = 0;
    int required_ = 0;         // the first ones
    int positional_ = 0;       // which may be passed by position
    int positional_only_ = 0;  // which may not be passed by name
};

// Reads a flag by its truth, as Python does; null leaves it as it is.
inline bool parse_flag(PyObject *object, bool *flag) noexcept {
    const int truth = object == nullptr ? static_cast<int>(*flag) : PyObject_IsTrue(object);
    *flag = truth > 0;
    return truth >= 0;
}

}  // namespace cukern::py
